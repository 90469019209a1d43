/* cuDNN knows attention as the graph of what it computes: two products with a softmax between them.
 * Its engines look for just these operations, in the forms that NVIDIA's own front end gives them.
 *
 * Tables say which tensors and operations there are. Keys go in transposed; the log-sum-exp comes
 * out as the backward reads it, heads side by side. */
#include "kernels/cuda/attention_graph.h"

#include <math.h>
#include <string.h>

#include "base/base.h"

enum {
	QUERIES = 1,
	KEYS,
	VALUES,
	OUT,
	LSE,
	SCALE,
	MASKED, /* minus infinity */
	SCORES,
	SCALED,
	ROW,
	COLUMN,
	KEPT, /* row >= column */
	CAUSAL,
	MOST, /* of a row */
	SHIFTED,
	RAISED,
	SUM,
	LOGARITHM,
	WEIGHTS,
};

enum { CONFIGS = 8 }; /* that are looked at */

enum shape { OF_QUERIES, OF_KEYS, OF_VALUES, OF_OUT, OF_LSE, ONE, SQUARE, COLUMN_OF_ROWS };

/* By number. Those of shape ONE are passed by value; virtual ones never exist. */
static const struct tensor {
	int type;
	enum shape shape;
	bool is_virtual;
} tensors[ATTENTION_TENSORS] = {
	[QUERIES] = {CUDNN_DATA_BFLOAT16, OF_QUERIES, false},
	[KEYS] = {CUDNN_DATA_BFLOAT16, OF_KEYS, false},
	[VALUES] = {CUDNN_DATA_BFLOAT16, OF_VALUES, false},
	[OUT] = {CUDNN_DATA_BFLOAT16, OF_OUT, false},
	[LSE] = {CUDNN_DATA_FLOAT, OF_LSE, false},
	[SCALE] = {CUDNN_DATA_FLOAT, ONE, false},
	[MASKED] = {CUDNN_DATA_FLOAT, ONE, false},
	[SCORES] = {CUDNN_DATA_FLOAT, SQUARE, true},
	[SCALED] = {CUDNN_DATA_FLOAT, SQUARE, true},
	[ROW] = {CUDNN_DATA_INT32, SQUARE, true},
	[COLUMN] = {CUDNN_DATA_INT32, SQUARE, true},
	[KEPT] = {CUDNN_DATA_BOOLEAN, SQUARE, true},
	[CAUSAL] = {CUDNN_DATA_FLOAT, SQUARE, true},
	[MOST] = {CUDNN_DATA_FLOAT, COLUMN_OF_ROWS, true},
	[SHIFTED] = {CUDNN_DATA_FLOAT, SQUARE, true},
	[RAISED] = {CUDNN_DATA_FLOAT, SQUARE, true},
	[SUM] = {CUDNN_DATA_FLOAT, COLUMN_OF_ROWS, true},
	[LOGARITHM] = {CUDNN_DATA_FLOAT, COLUMN_OF_ROWS, true},
	[WEIGHTS] = {CUDNN_DATA_BFLOAT16, SQUARE, true},
};

enum kind { PRODUCT, REDUCTION, POINTWISE };

/* y of x and b, where t. axis 0: none. */
static const struct operation {
	enum kind kind;
	int mode, math, x, b, t, y, axis;
} operations[] = {
	{PRODUCT, 0, CUDNN_DATA_FLOAT, QUERIES, KEYS, 0, SCORES, 0},
	{POINTWISE, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, SCORES, SCALE, 0, SCALED, 0},
	{POINTWISE, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, SCALED, 0, 0, ROW, 2},
	{POINTWISE, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, SCALED, 0, 0, COLUMN, 3},
	{POINTWISE, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, ROW, COLUMN, 0, KEPT, 0},
	{POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, SCALED, MASKED, KEPT, CAUSAL,
		0},
	{REDUCTION, CUDNN_REDUCE_TENSOR_MAX, CUDNN_DATA_FLOAT, CAUSAL, 0, 0, MOST, 0},
	{POINTWISE, CUDNN_POINTWISE_SUB, CUDNN_DATA_FLOAT, CAUSAL, MOST, 0, SHIFTED, 0},
	{POINTWISE, CUDNN_POINTWISE_EXP, CUDNN_DATA_FLOAT, SHIFTED, 0, 0, RAISED, 0},
	{REDUCTION, CUDNN_REDUCE_TENSOR_ADD, CUDNN_DATA_FLOAT, RAISED, 0, 0, SUM, 0},
	{POINTWISE, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, SUM, 0, 0, LOGARITHM, 0},
	{POINTWISE, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, MOST, LOGARITHM, 0, LSE, 0},
	{POINTWISE, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, RAISED, SUM, 0, WEIGHTS, 0},
	{PRODUCT, 0, CUDNN_DATA_FLOAT, WEIGHTS, VALUES, 0, OUT, 0},
};

/* How cuDNN calls what an operation of each kind has. */
static const struct names {
	int description, mode, mode_type, math;
	int operation, of, x, b, t, y;
} names[] = {
	[PRODUCT] = {CUDNN_BACKEND_MATMUL_DESCRIPTOR, -1, 0, CUDNN_ATTR_MATMUL_COMP_TYPE,
		CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
		CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, -1,
		CUDNN_ATTR_OPERATION_MATMUL_CDESC},
	[REDUCTION] = {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
		CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_ATTR_REDUCTION_COMP_TYPE,
		CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
		CUDNN_ATTR_OPERATION_REDUCTION_XDESC, -1, -1, CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
	[POINTWISE] = {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE,
		CUDNN_TYPE_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC,
		CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
		CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
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

static void extent_of(
	enum shape shape, const struct attention *a, int64_t extent[4], int64_t stride[4])
{
	int64_t b = a->sequences, h = a->heads, s = a->length, d = a->head_dim, kv = a->kv_heads;
	const int64_t extents[][4] = {[OF_QUERIES] = {b, h, s, d},
		[OF_KEYS] = {b, kv, d, s},
		[OF_VALUES] = {b, kv, s, d},
		[OF_OUT] = {b, h, s, d},
		[OF_LSE] = {b, h, s, 1},
		[ONE] = {1, 1, 1, 1},
		[SQUARE] = {b, h, s, s},
		[COLUMN_OF_ROWS] = {b, h, s, 1}};
	const int64_t strides[][4] = {[OF_QUERIES] = {s * a->q_stride, d, a->q_stride, 1},
		[OF_KEYS] = {s * a->k_stride, d, 1, a->k_stride},
		[OF_VALUES] = {s * a->v_stride, d, a->v_stride, 1},
		[OF_OUT] = {s * a->out_stride, d, a->out_stride, 1},
		[OF_LSE] = {s * h, 1, h, 1},
		[ONE] = {1, 1, 1, 1},
		[SQUARE] = {h * s * s, s * s, s, 1},
		[COLUMN_OF_ROWS] = {h * s, s, 1, 1}};

	memcpy(extent, extents[shape], sizeof(extents[shape]));
	memcpy(stride, strides[shape], sizeof(strides[shape]));
}

static void add_tensor(struct attention_graph *g, const struct attention *a, int number)
{
	const struct tensor *t = &tensors[number];
	int64_t id = number, alignment = t->type == CUDNN_DATA_FLOAT ? 4 : 16;
	bool by_value = t->shape == ONE;
	int64_t extent[4], stride[4];
	void *tensor = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);

	extent_of(t->shape, a, extent, stride);
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

static void *add_operation(struct attention_graph *g, const struct operation *o)
{
	const struct names *n = &names[o->kind];
	int64_t axis = o->axis;
	void *what = make(g, n->description);

	if (n->mode >= 0)
		set(g, what, n->mode, n->mode_type, 1, &o->mode);
	set(g, what, n->math, CUDNN_TYPE_DATA_TYPE, 1, &o->math);
	if (o->axis > 0)
		set(g, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
	finish(g, what);

	void *operation = make(g, n->operation);
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

bool attention_graph_build(
	struct attention_graph *g, const struct cudnn_target *target, const struct attention *shape)
{
	void *all[COUNT_OF(operations)];

	*g = (struct attention_graph){.target = *target};
	for (int i = 1; i < ATTENTION_TENSORS; i++)
		add_tensor(g, shape, i);
	for (int i = 0; i < COUNT_OF(operations); i++)
		all[i] = add_operation(g, &operations[i]);
	g->graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	if (g->target.device == NULL)
		set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
			&g->target.handle);
	set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
		COUNT_OF(operations), all);
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
};

/* cuDNN's proposals, of which there are fewer than it announces where some cannot be built. */
static int propose(struct attention_graph *g, void **configs, int most)
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
	g->plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	set_descriptor(g, g->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	finish(g, g->plan);
	get(g, g->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
		&g->workspace_bytes);
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
	struct attention_algorithm *algorithms, int most)
{
	void *configs[CONFIGS];
	int before = g->n_made, n = propose(g, configs, CONFIGS), proposed = g->n_made, kept = 0;

	for (int i = 0; i < n && kept < most; i++) {
		kept += take_apart(g, configs[i], &algorithms[kept]) && make_plan(g, configs[i]) &&
			g->workspace_bytes <= workspace;
		back_to(g, proposed);
	}
	back_to(g, before);
	g->plan = NULL;
	return kept;
}

int attention_graph_run(const struct attention_graph *g, const struct attention *a, void *workspace)
{
	static const int64_t ids[] = {QUERIES, KEYS, VALUES, OUT, LSE, SCALE, MASKED};
	static const float masked = -INFINITY;
	const struct cudnn_api *api = g->target.api;
	const void *pointers[] = {a->q, a->k, a->v, a->out, a->lse, &a->scale, &masked};
	void *pack = NULL;
	int status =
		api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

	if (status != 0)
		return status;
	status = api->cudnnBackendSetAttribute(
		pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, COUNT_OF(ids), ids);
	if (status == 0)
		status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
			CUDNN_TYPE_VOID_PTR, COUNT_OF(pointers), pointers);
	if (status == 0)
		status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
			CUDNN_TYPE_VOID_PTR, 1, &workspace);
	if (status == 0)
		status = api->cudnnBackendFinalize(pack);
	if (status == 0)
		status = api->cudnnBackendExecute(g->target.handle, g->plan, pack);
	api->cudnnBackendDestroyDescriptor(pack);
	return status;
}
