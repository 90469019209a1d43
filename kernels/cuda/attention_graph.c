/* Descriptors of cuDNN's, made of the tables of attention_operations.c, and what cuDNN proposes. */
#include "kernels/cuda/attention_graph.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

enum { CONFIGS = 8 }; /* that are looked at */

/* How cuDNN calls what an operation of each kind has. description -1: there is none, but tensors.
 */
static const struct names {
	int description, mode, mode_type, math;
	int operation, of, x, b, t, y;
} names[] = {
	[ATTENTION_PRODUCT] = {CUDNN_BACKEND_MATMUL_DESCRIPTOR, -1, 0, CUDNN_ATTR_MATMUL_COMP_TYPE,
		CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
		CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, -1,
		CUDNN_ATTR_OPERATION_MATMUL_CDESC},
	[ATTENTION_REDUCTION] = {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
		CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_ATTR_REDUCTION_COMP_TYPE,
		CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
		CUDNN_ATTR_OPERATION_REDUCTION_XDESC, -1, -1, CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
	[ATTENTION_POINTWISE] = {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE,
		CUDNN_TYPE_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC,
		CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
	[ATTENTION_RESHAPE] = {-1, -1, 0, -1, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, -1,
		CUDNN_ATTR_OPERATION_RESHAPE_XDESC, -1, -1, CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
};

/* --- descriptors: after a failure nothing is done any more -------------------------------------
 */

static void *make(struct attention_graph *g, int type)
{
	void *made = NULL;

	if (g->status == 0 && g->n_made == ATTENTION_DESCRIPTORS)
		g->status = -1;
	if (g->status == 0)
		g->status = g->target.api->cudnnBackendCreateDescriptor(type, &made);
	if (g->status == 0)
		g->made[g->n_made++] = made;
	return made;
}

static void set(struct attention_graph *g, void *descriptor, int attribute, int type, int64_t count,
	const void *values)
{
	if (g->status == 0)
		g->status = g->target.api->cudnnBackendSetAttribute(
			descriptor, attribute, type, count, values);
}

static void set_descriptor(
	struct attention_graph *g, void *descriptor, int attribute, const void *other)
{
	set(g, descriptor, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
}

static void finish(struct attention_graph *g, void *descriptor)
{
	if (g->status == 0)
		g->status = g->target.api->cudnnBackendFinalize(descriptor);
}

/* How many there are; 0 after a failure. */
static int64_t get(struct attention_graph *g, void *descriptor, int attribute, int type,
	int64_t wanted, void *values)
{
	int64_t count = 0;

	if (g->status == 0)
		g->status = g->target.api->cudnnBackendGetAttribute(
			descriptor, attribute, type, wanted, &count, values);
	return g->status == 0 ? count : 0;
}

/* Back to when there were so many. */
static void back_to(struct attention_graph *g, int n_made)
{
	while (g->n_made > n_made)
		g->target.api->cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
	g->status = 0;
}

/* --- the graph ---------------------------------------------------------------------------------
 */

static void add_tensor(struct attention_graph *g, const struct attention_call *shape, int number)
{
	const struct attention_tensor *t = &attention_tensors[number];
	int64_t id = number, alignment = t->type == CUDNN_DATA_FLOAT ? 4 : 16;
	bool by_value = t->shape == OF_ONE;
	int64_t extent[4], stride[4];

	if (number == NO_TENSOR || g->tensors[number] != NULL)
		return;
	void *tensor = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	attention_extent(t->shape, shape, extent, stride);
	set(g, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
	set(g, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extent);
	set(g, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
	set(g, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
	set(g, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
	set(g, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &t->is_virtual);
	if (by_value)
		set(g, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
	finish(g, tensor);
	g->tensors[number] = tensor;
}

static void *describe(struct attention_graph *g, const struct attention_operation *o)
{
	const struct names *n = &names[o->kind];
	bool repeats = true;
	int64_t axis = o->axis;
	void *what = make(g, n->description);

	if (n->mode >= 0)
		set(g, what, n->mode, n->mode_type, 1, &o->mode);
	set(g, what, n->math, CUDNN_TYPE_DATA_TYPE, 1, &o->math);
	if (o->axis > 0)
		set(g, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
	if (o->kind == ATTENTION_REDUCTION && g->pass == ATTENTION_BACKWARD)
		set(g, what, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1,
			&repeats);
	finish(g, what);
	return what;
}

static void *add_operation(struct attention_graph *g, const struct attention_operation *o)
{
	const struct names *n = &names[o->kind];
	void *what = n->description >= 0 ? describe(g, o) : NULL;
	void *operation = make(g, n->operation);

	if (what != NULL)
		set_descriptor(g, operation, n->of, what);
	set_descriptor(g, operation, n->x, g->tensors[o->x]);
	if (o->b > 0)
		set_descriptor(g, operation, n->b, g->tensors[o->b]);
	if (o->t > 0)
		set_descriptor(g, operation, n->t, g->tensors[o->t]);
	set_descriptor(g, operation, n->y, g->tensors[o->y]);
	finish(g, operation);
	return operation;
}

bool attention_graph_build(struct attention_graph *g, const struct cudnn_target *target,
	enum attention_pass pass, const struct attention_call *shape)
{
	const struct attention_operations *operations = &attention_passes[pass];
	const struct attention *f = &shape->of.forward;
	void *all[ATTENTION_OPERATIONS];
	int n = 0;

	*g = (struct attention_graph){.target = *target, .pass = pass};
	if (pass == ATTENTION_BACKWARD)
		g->sums_bytes = round_up(4 * f->sequences * f->length * f->heads, 256);
	for (int i = 0; i < operations->n; i++) {
		const struct attention_operation *o = &operations->list[i];

		if (!attention_has_operation(o, f))
			continue;
		add_tensor(g, shape, o->x);
		add_tensor(g, shape, o->b);
		add_tensor(g, shape, o->t);
		add_tensor(g, shape, o->y);
		all[n++] = add_operation(g, o);
	}
	g->graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	if (g->target.device == NULL)
		set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
			&g->target.handle);
	set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, all);
	finish(g, g->graph);
	return g->status == 0;
}

void attention_graph_drop(struct attention_graph *g)
{
	back_to(g, 0);
	g->graph = g->plan = NULL;
}

/* --- plans -------------------------------------------------------------------------------------
 */

/* The knobs of an engine that struct attention_algorithm holds; one that the engine lacks is 0. */
static const struct knob {
	int type;
	size_t offset;
} knobs[] = {
	{CUDNN_KNOB_TYPE_KERNEL_CFG, offsetof(struct attention_algorithm, kernel)},
	{CUDNN_KNOB_TYPE_TILE_CGA_M, offsetof(struct attention_algorithm, cluster)},
	{CUDNN_KNOB_TYPE_STREAM_K, offsetof(struct attention_algorithm, stream_k)},
	{CUDNN_KNOB_TYPE_TILE_M, offsetof(struct attention_algorithm, tile_m)},
	{CUDNN_KNOB_TYPE_TILE_N, offsetof(struct attention_algorithm, tile_n)},
	{CUDNN_KNOB_TYPE_STAGES, offsetof(struct attention_algorithm, stages)},
};

/* cuDNN's proposals, of which there are fewer than it announces where some cannot be built. */
static int ask_heuristic(struct attention_graph *g, void **configs, int most)
{
	int mode = CUDNN_HEUR_MODE_A;
	void *heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);

	set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph);
	set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (g->target.device != NULL)
		set_descriptor(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, g->target.device);
	finish(g, heuristic);
	for (int i = 0; i < most; i++)
		configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	int64_t n = get(g, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
		most, configs);
	return (int)(n < most ? n : most);
}

/* An engine by its number and knobs, which the heuristic need not propose. NULL: there is none. */
static void *by_numbers(struct attention_graph *g, const struct attention_algorithm *algorithm)
{
	void *engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR), *choices[COUNT_OF(knobs)];
	int64_t index = algorithm->engine, n = 0;

	set_descriptor(g, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph);
	set(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
	if (g->target.device != NULL)
		set_descriptor(g, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, g->target.device);
	finish(g, engine);
	for (int i = 0; i < COUNT_OF(knobs); i++) {
		int64_t value = *(const int32_t *)((const char *)algorithm + knobs[i].offset);

		if (value == 0)
			continue;
		void *choice = make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
		set(g, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
			&knobs[i].type);
		set(g, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
		finish(g, choice);
		choices[n++] = choice;
	}
	void *config = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	set_descriptor(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
	set(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
		choices);
	finish(g, config);
	return g->status == 0 ? config : NULL;
}

/* The heuristic does not propose this: Blackwell's engine for the backward that repeats its bits,
 * as NVIDIA's front end asks for it. */
static const struct attention_algorithm unproposed[] = {{.engine = 5, .kernel = 31, .stages = 2}};

static int propose(struct attention_graph *g, void **configs, int most)
{
	int n = 0;

	for (int i = 0; i < COUNT_OF(unproposed) && g->pass == ATTENTION_BACKWARD; i++) {
		int before = g->n_made;

		configs[n] = by_numbers(g, &unproposed[i]);
		if (configs[n] == NULL)
			back_to(g, before);
		else
			n++;
	}
	return n + ask_heuristic(g, configs + n, most - n);
}

/* False: its bits are said to vary. */
static bool read_engine(
	struct attention_graph *g, void *config, struct attention_algorithm *algorithm)
{
	enum { NOTES = 16 };
	void *engine = make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	int notes[NOTES];
	int64_t index = 0;

	get(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
	get(g, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
	algorithm->engine = (int32_t)index;
	int64_t n = get(g, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
		NOTES, notes);
	for (int i = 0; i < n && i < NOTES; i++)
		if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
			return false;
	return g->status == 0;
}

static bool read_knob(
	struct attention_graph *g, void *choice, struct attention_algorithm *algorithm)
{
	int type = -1;
	int64_t value = 0;

	get(g, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
	get(g, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
	for (int i = 0; i < COUNT_OF(knobs); i++)
		if (knobs[i].type == type && value >= 0 && value <= INT32_MAX) {
			*(int32_t *)((char *)algorithm + knobs[i].offset) = (int32_t)value;
			return g->status == 0;
		}
	return false;
}

/* False where the engine has knobs that struct attention_algorithm does not hold. */
static bool take_apart(
	struct attention_graph *g, void *config, struct attention_algorithm *algorithm)
{
	enum { MOST_KNOBS = 8 };
	void *choices[MOST_KNOBS];

	*algorithm = (struct attention_algorithm){0};
	if (!read_engine(g, config, algorithm))
		return false;
	for (int i = 0; i < MOST_KNOBS; i++)
		choices[i] = make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
	int64_t n = get(g, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
		MOST_KNOBS, choices);
	for (int i = 0; i < n; i++)
		if (i == MOST_KNOBS || !read_knob(g, choices[i], algorithm))
			return false;
	return g->status == 0;
}

/* A config knows for whom it is: a plan is told of no handle and no device. */
static bool make_plan(struct attention_graph *g, void *config)
{
	int64_t bytes = 0;

	g->plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	set_descriptor(g, g->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	finish(g, g->plan);
	get(g, g->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
	g->workspace_bytes = g->sums_bytes + bytes;
	return g->status == 0;
}

bool attention_graph_plan(struct attention_graph *g, const struct attention_algorithm *algorithm)
{
	void *configs[CONFIGS];
	int before = g->n_made, n = propose(g, configs, CONFIGS), proposed = g->n_made;

	for (int i = 0; i < n; i++) {
		struct attention_algorithm found;

		if (take_apart(g, configs[i], &found) &&
			memcmp(&found, algorithm, sizeof(*algorithm)) == 0 &&
			make_plan(g, configs[i]))
			return true;
		back_to(g, proposed);
	}
	back_to(g, before);
	g->plan = NULL;
	return false;
}

int attention_graph_algorithms(struct attention_graph *g, int64_t workspace,
	struct attention_algorithm *algorithms, int64_t *bytes, int most)
{
	void *configs[CONFIGS];
	int before = g->n_made, n = propose(g, configs, CONFIGS), proposed = g->n_made, kept = 0;

	for (int i = 0; i < n && kept < most; i++) {
		if (take_apart(g, configs[i], &algorithms[kept]) && make_plan(g, configs[i]) &&
			g->workspace_bytes <= workspace)
			bytes[kept++] = g->workspace_bytes;
		back_to(g, proposed);
	}
	back_to(g, before);
	g->plan = NULL;
	return kept;
}

/* --- runs --------------------------------------------------------------------------------------
 */

/* Where each tensor is that exists; scalars are read there. */
static void place_tensors(
	const struct attention_backward *b, const void *sums, const void *places[ATTENTION_TENSORS])
{
	static const float masked = -INFINITY, unit = 1;
	const struct attention *f = &b->forward;

	places[QUERIES] = f->q;
	places[KEYS] = f->k;
	places[VALUES] = places[VALUES_ACROSS] = f->v;
	places[OUT] = f->out;
	places[LSE] = f->lse;
	places[SCALE] = &f->scale;
	places[MASKED] = &masked;
	places[UNIT] = &unit;
	places[DOUT] = b->dout;
	places[DQ] = b->dq;
	places[DK] = b->dk;
	places[DV] = b->dv;
	places[DELTAS] = sums;
}

static int execute(const struct attention_graph *g, void *pack, int64_t n, const int64_t *ids,
	const void *const *pointers, const void *workspace)
{
	const struct cudnn_api *api = g->target.api;
	int status = api->cudnnBackendSetAttribute(
		pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, ids);

	if (status == 0)
		status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
			CUDNN_TYPE_VOID_PTR, n, pointers);
	if (status == 0)
		status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
			CUDNN_TYPE_VOID_PTR, 1, &workspace);
	if (status == 0)
		status = api->cudnnBackendFinalize(pack);
	if (status == 0)
		status = api->cudnnBackendExecute(g->target.handle, g->plan, pack);
	return status;
}

int attention_graph_run(
	const struct attention_graph *g, const struct attention_call *call, void *workspace)
{
	const void *places[ATTENTION_TENSORS] = {NULL}, *pointers[ATTENTION_TENSORS];
	int64_t ids[ATTENTION_TENSORS], n = 0;
	void *pack = NULL;
	int status = g->target.api->cudnnBackendCreateDescriptor(
		CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

	if (status != 0)
		return status;
	place_tensors(&call->of, workspace, places);
	for (int i = 1; i < ATTENTION_TENSORS; i++)
		if (g->tensors[i] != NULL && !attention_tensors[i].is_virtual) {
			ids[n] = i;
			pointers[n++] = places[i];
		}
	status = execute(g, pack, n, ids, pointers, (char *)workspace + g->sums_bytes);
	g->target.api->cudnnBackendDestroyDescriptor(pack);
	return status;
}
