#include "tests/kernels/fake_cudnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/common/bf16.h"

struct fake_cudnn fake_cudnn;

enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { ATTRIBUTES = 12, TENSORS = 48, DIMS = 4 };

struct descriptor {
	int type;
	bool finished;
	int n;
	struct attribute {
		int name, type;
		int64_t count;
		char *bytes;
	} attributes[ATTRIBUTES];
};

/* --- descriptors ------------------------------------------------------------------------------ */

static size_t bytes_of(int type)
{
	switch (type) {
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR:
		return 1;
	case CUDNN_TYPE_INT64:
		return sizeof(int64_t);
	case CUDNN_TYPE_HANDLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR:
		return sizeof(void *);
	default:
		return 4;
	}
}

static int create(int type, void **made)
{
	struct descriptor *d = calloc(1, sizeof(*d));

	d->type = type;
	*made = d;
	fake_cudnn.made++;
	return 0;
}

static int destroy(void *descriptor)
{
	struct descriptor *d = descriptor;

	for (int i = 0; i < d->n; i++)
		free(d->attributes[i].bytes);
	free(d);
	fake_cudnn.destroyed++;
	return 0;
}

/* What is not finished cannot be part of something; what is, cannot be told more. */
static int set(void *descriptor, int name, int type, int64_t count, const void *values)
{
	struct descriptor *d = descriptor;
	size_t bytes = (size_t)count * bytes_of(type);

	if (d == NULL || d->finished || d->n == ATTRIBUTES)
		return BAD_PARAM;
	for (int64_t i = 0; i < count && type == CUDNN_TYPE_BACKEND_DESCRIPTOR; i++) {
		const struct descriptor *part = ((struct descriptor *const *)values)[i];

		if (part == NULL || !part->finished)
			return BAD_PARAM;
	}
	struct attribute *a = &d->attributes[d->n++];
	*a = (struct attribute){name, type, count, malloc(bytes)};
	memcpy(a->bytes, values, bytes);
	return 0;
}

static const struct attribute *find(const struct descriptor *d, int name)
{
	for (int i = 0; i < d->n; i++)
		if (d->attributes[i].name == name)
			return &d->attributes[i];
	return NULL;
}

static int64_t number(const struct descriptor *d, int name)
{
	const struct attribute *a = find(d, name);
	int64_t value = 0;

	if (a != NULL)
		memcpy(&value, a->bytes, bytes_of(a->type));
	return value;
}

static struct descriptor *part(const struct descriptor *d, int name)
{
	return (struct descriptor *)(uintptr_t)number(d, name);
}

/* --- proposals -------------------------------------------------------------------------------- */

enum { NO_KNOB = -1, ODD_KNOB = 12 };
static const struct proposal {
	int64_t engine, workspace;
	int note;
	struct {
		int type;
		int64_t value;
	} knobs[2];
} proposals[] = {
	{FAKE_FIT, 256, 0, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 7}, {CUDNN_KNOB_TYPE_TILE_M, 3}}},
	{FAKE_VARIES, 0, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
		{{CUDNN_KNOB_TYPE_KERNEL_CFG, 7}, {NO_KNOB, 0}}},
	{FAKE_HUNGRY, (int64_t)1 << 40, 0, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 7}, {NO_KNOB, 0}}},
	{FAKE_ODD, 0, 0, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 7}, {ODD_KNOB, 0}}},
	{FAKE_SECOND, 0, 0, {{CUDNN_KNOB_TYPE_TILE_CGA_M, 4}, {CUDNN_KNOB_TYPE_TILE_N, 2}}},
	{FAKE_UNPROPOSED, 0, 0, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}},
};
enum { PROPOSED = COUNT_OF(proposals) - 1 };

static const struct proposal *proposal_of(int64_t engine)
{
	for (int i = 0; i < COUNT_OF(proposals); i++)
		if (proposals[i].engine == engine)
			return &proposals[i];
	return NULL;
}

/* A config is of the heuristic, which leaves engine and graph in it, or was made of an engine. */
static int64_t engine_of(const struct descriptor *config)
{
	const struct descriptor *engine = part(config, CUDNN_ATTR_ENGINECFG_ENGINE);

	return number(engine != NULL ? engine : config, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

static const struct descriptor *graph_of(const struct descriptor *config)
{
	const struct descriptor *engine = part(config, CUDNN_ATTR_ENGINECFG_ENGINE);

	return engine != NULL ? part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
			      : part(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
}

static const struct descriptor *operation_of(const struct descriptor *graph, int type)
{
	const struct attribute *all = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	struct descriptor *const *operations = (struct descriptor *const *)(void *)all->bytes;

	for (int64_t i = 0; i < all->count; i++)
		if (operations[i]->type == type)
			return operations[i];
	return NULL;
}

static bool is_backward(const struct descriptor *graph)
{
	return operation_of(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) != NULL;
}

/* Returns the size of the workspace, by the sequences and heads of what is turned first, the
 * weights. */
static int64_t workspace_of(const struct descriptor *config)
{
	const struct descriptor *graph = graph_of(config), *turned;
	int64_t engine = engine_of(config), extent[2];

	if (!is_backward(graph) || engine != FAKE_FIT)
		return proposal_of(engine)->workspace;
	turned = part(operation_of(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR),
		CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
	memcpy(extent, find(turned, CUDNN_ATTR_TENSOR_DIMENSIONS)->bytes, sizeof(extent));
	return FAKE_HEAD_BYTES * extent[0] * extent[1];
}

static void fill_knob(struct descriptor *d, int type, int64_t value)
{
	set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
	set(d, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
	d->finished = true;
}

/* Whoever asks has made the descriptors that are filled. */
static int give(const struct descriptor *d, int name, int64_t wanted, int64_t *count,
	struct descriptor **to)
{
	int64_t engine = engine_of(d);
	const struct proposal *p = proposal_of(engine);

	*count = 0;
	if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
		for (int i = 0; i < PROPOSED && i < wanted; i++) {
			int64_t number_of = proposals[i].engine;

			const void *graph = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);

			set(to[i], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number_of);
			/* A config knows what it is for. */
			set(to[i], CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
				CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
			to[i]->finished = true;
			++*count;
		}
	} else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
		set(to[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &engine);
		to[0]->finished = true;
		*count = 1;
	} else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
		for (int i = 0; i < 2 && i < wanted && p->knobs[i].type != NO_KNOB; i++) {
			fill_knob(to[i], p->knobs[i].type, p->knobs[i].value);
			++*count;
		}
	}
	return 0;
}

static int get(void *descriptor, int name, int type, int64_t wanted, int64_t *count, void *values)
{
	const struct descriptor *d = descriptor;

	if (!d->finished)
		return BAD_PARAM;
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return give(d, name, wanted, count, values);
	*count = 1;
	if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
		int64_t bytes = workspace_of(part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));

		memcpy(values, &bytes, sizeof(bytes));
	} else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
		const struct proposal *p = proposal_of(number(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX));

		*count = p->note != 0;
		*(int *)values = p->note;
	} else if (find(d, name) != NULL) {
		memcpy(values, find(d, name)->bytes, bytes_of(type));
	} else {
		return BAD_PARAM;
	}
	return 0;
}

/* A graph needs the handle of cudnnCreate. */
static char handle;

static void count_reductions(const struct descriptor *graph)
{
	const struct attribute *all = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	struct descriptor *const *operations = (struct descriptor *const *)(void *)all->bytes;

	for (int64_t i = 0; i < all->count; i++) {
		const struct descriptor *how =
			part(operations[i], CUDNN_ATTR_OPERATION_REDUCTION_DESC);

		if (how == NULL)
			continue;
		if (number(how, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC))
			fake_cudnn.settled++;
		else
			fake_cudnn.unsettled++;
	}
}

static int finalize(void *descriptor)
{
	struct descriptor *d = descriptor;

	if (d->finished)
		return BAD_PARAM;
	if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
		(!fake_cudnn.blackwell ||
			number(d, CUDNN_ATTR_ENGINE_GLOBAL_INDEX) != FAKE_UNPROPOSED))
		return NOT_SUPPORTED;
	if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && is_backward(d)) {
		if (fake_cudnn.no_backward)
			return NOT_SUPPORTED;
		count_reductions(d);
	}
	if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
		part(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) != (void *)&handle)
		return BAD_PARAM;
	fake_cudnn.plans += d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
	d->finished = true;
	return 0;
}

/* --- arithmetic ------------------------------------------------------------------------------- */

struct value {
	int64_t extent[DIMS], stride[DIMS];
	int type;
	double *dense; /* as computed so far; NULL: not yet */
	void *pointer; /* of those that exist */
};

static struct value values[TENSORS];

static int64_t size_of(const struct value *v)
{
	return v->extent[0] * v->extent[1] * v->extent[2] * v->extent[3];
}

static int64_t place(const struct value *v, int64_t i)
{
	int64_t at = 0;

	for (int d = DIMS - 1; d >= 0; d--) {
		at += i % v->extent[d] * v->stride[d];
		i /= v->extent[d];
	}
	return at;
}

static double load(const struct value *v, int64_t at)
{
	return v->type == CUDNN_DATA_BFLOAT16
		       ? (double)bf16_to_float(((const uint16_t *)v->pointer)[at])
		       : (double)((const float *)v->pointer)[at];
}

static struct value *value_of(const struct descriptor *operation, int name)
{
	const struct descriptor *t = part(operation, name);

	if (t == NULL)
		return NULL;
	struct value *v = &values[number(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)];

	if (v->dense != NULL)
		return v;
	memcpy(v->extent, find(t, CUDNN_ATTR_TENSOR_DIMENSIONS)->bytes, sizeof(v->extent));
	memcpy(v->stride, find(t, CUDNN_ATTR_TENSOR_STRIDES)->bytes, sizeof(v->stride));
	v->type = (int)number(t, CUDNN_ATTR_TENSOR_DATA_TYPE);
	v->dense = calloc((size_t)size_of(v), sizeof(double));
	for (int64_t i = 0; i < size_of(v) && v->pointer != NULL; i++)
		v->dense[i] = load(v, place(v, i));
	return v;
}

/* The element of x that goes with the i-th of y: where x is one wide, that; fewer heads are shared.
 */
static double with(const struct value *x, const struct value *y, int64_t i)
{
	int64_t at[DIMS], place_in_x = 0;

	for (int d = DIMS - 1; d >= 0; d--) {
		at[d] = i % y->extent[d];
		i /= y->extent[d];
	}
	for (int d = 0; d < DIMS; d++)
		place_in_x = place_in_x * x->extent[d] + (x->extent[d] == 1 ? 0 : at[d]);
	return x->dense[place_in_x];
}

static double point(int mode, double x, double b, double t)
{
	switch (mode) {
	case CUDNN_POINTWISE_ADD:
		return x + b;
	case CUDNN_POINTWISE_MUL:
		return x * b;
	case CUDNN_POINTWISE_SUB:
		return x - b;
	case CUDNN_POINTWISE_DIV:
		return x / b;
	case CUDNN_POINTWISE_EXP:
		return exp(x);
	case CUDNN_POINTWISE_LOG:
		return log(x);
	case CUDNN_POINTWISE_CMP_GE:
		return x >= b;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return t != 0 ? x : b;
	default:
		abort();
	}
}

static void pointwise(const struct descriptor *o)
{
	const struct descriptor *how = part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
	const struct value *x = value_of(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
	const struct value *b = value_of(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
	const struct value *t = value_of(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
	struct value *y = value_of(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
	int mode = (int)number(how, CUDNN_ATTR_POINTWISE_MODE);
	int64_t axis = number(how, CUDNN_ATTR_POINTWISE_AXIS), step = 1;

	for (int64_t d = DIMS - 1; d > axis; d--)
		step *= y->extent[d];
	for (int64_t i = 0; i < size_of(y); i++)
		y->dense[i] = mode == CUDNN_POINTWISE_GEN_INDEX
				      ? (double)(i / step % y->extent[axis])
				      : point(mode, with(x, y, i), b ? with(b, y, i) : 0,
						t ? with(t, y, i) : 0);
}

/* Where in y the i-th of x goes: rows to one, or heads that share keys to theirs. */
static int64_t reduced_place(const struct value *x, const struct value *y, int64_t i)
{
	int64_t at[DIMS], place_in_y = 0;

	for (int d = DIMS - 1; d >= 0; d--) {
		at[d] = i % x->extent[d] / (x->extent[d] / y->extent[d]);
		i /= x->extent[d];
	}
	for (int d = 0; d < DIMS; d++)
		place_in_y = place_in_y * y->extent[d] + at[d];
	return place_in_y;
}

static void reduce(const struct descriptor *o)
{
	const struct descriptor *how = part(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
	const struct value *x = value_of(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
	struct value *y = value_of(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
	bool most = number(how, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;

	for (int64_t i = 0; i < size_of(y); i++)
		y->dense[i] = most ? -INFINITY : 0;
	for (int64_t i = 0; i < size_of(x); i++) {
		double *to = &y->dense[reduced_place(x, y, i)];

		*to = most ? fmax(*to, x->dense[i]) : *to + x->dense[i];
	}
}

/* Writes the same elements in the order that other strides give them. */
static void reshape(const struct descriptor *o)
{
	const struct value *x = value_of(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
	struct value *y = value_of(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
	int64_t last = place(x, size_of(x) - 1);
	double *laid = calloc((size_t)last + 1, sizeof(*laid));

	for (int64_t i = 0; i < size_of(x); i++)
		laid[place(x, i)] = x->dense[i];
	for (int64_t i = 0; i < size_of(y); i++)
		y->dense[i] = laid[place(y, i)];
	free(laid);
}

static void multiply(const struct descriptor *o)
{
	const struct value *a = value_of(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
	const struct value *b = value_of(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
	struct value *c = value_of(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
	int64_t heads = c->extent[1], m = c->extent[2], n = c->extent[3], k = a->extent[3];

	for (int64_t i = 0; i < size_of(c); i++) {
		int64_t column = i % n, row = i / n, batch = row / m;
		int64_t shared =
			batch / heads * b->extent[1] + batch % heads / (heads / b->extent[1]);

		c->dense[i] = 0;
		for (int64_t p = 0; p < k; p++)
			c->dense[i] +=
				a->dense[row * k + p] * b->dense[(shared * k + p) * n + column];
	}
}

static void store(struct value *v)
{
	for (int64_t i = 0; i < size_of(v); i++)
		if (v->type == CUDNN_DATA_BFLOAT16)
			((uint16_t *)v->pointer)[place(v, i)] = bf16_from_float((float)v->dense[i]);
		else
			((float *)v->pointer)[place(v, i)] = (float)v->dense[i];
}

static const struct kind_of_operation {
	int type, output;
	void (*run)(const struct descriptor *o);
} kinds[] = {
	{CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, multiply},
	{CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
		reduce},
	{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
		pointwise},
	{CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, reshape},
};

static const struct kind_of_operation *kind_of(const struct descriptor *o)
{
	for (int i = 0; i < COUNT_OF(kinds); i++)
		if (kinds[i].type == o->type)
			return &kinds[i];
	abort();
}

/* What exists is written when all is computed. */
static void compute(const struct descriptor *graph)
{
	const struct attribute *all = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	struct descriptor *const *operations = (struct descriptor *const *)(void *)all->bytes;

	for (int64_t i = 0; i < all->count; i++)
		kind_of(operations[i])->run(operations[i]);
	for (int64_t i = 0; i < all->count; i++) {
		const struct descriptor *t = part(operations[i], kind_of(operations[i])->output);

		if (!number(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL))
			store(&values[number(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)]);
	}
}

static int execute(void *own, void *plan, void *pack)
{
	const struct attribute *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
	const struct attribute *pointers = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

	if (own != &handle || fake_cudnn.fails || ids->count != pointers->count ||
		part(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE) == NULL)
		return EXECUTION_FAILED;
	fake_cudnn.executions++;
	const struct descriptor *config = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
	fake_cudnn.engine = engine_of(config);
	char *workspace = (char *)part(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
	for (int64_t i = 0; i < pointers->count; i++) {
		const char *tensor = ((char *const *)(void *)pointers->bytes)[i];

		if (tensor >= workspace && tensor < workspace + workspace_of(config))
			return EXECUTION_FAILED;
	}
	memset(workspace, 0xff, (size_t)workspace_of(config));
	memset(values, 0, sizeof(values));
	for (int64_t i = 0; i < ids->count; i++)
		values[((const int64_t *)(void *)ids->bytes)[i]].pointer =
			((void *const *)(void *)pointers->bytes)[i];
	compute(graph_of(config));
	for (int i = 0; i < TENSORS; i++)
		free(values[i].dense);
	return 0;
}

/* --- the library ------------------------------------------------------------------------------ */

static int open_handle(void **made)
{
	if (fake_cudnn.no_handle)
		return NOT_SUPPORTED;
	fake_cudnn.handles++;
	*made = &handle;
	return 0;
}

static int close_handle(void *own)
{
	fake_cudnn.handles -= own == &handle;
	return 0;
}

static int set_stream(void *own, void *stream)
{
	fake_cudnn.stream = stream;
	return own == &handle ? 0 : BAD_PARAM;
}

static size_t version(void)
{
	return fake_cudnn.version;
}

const struct cudnn_api *fake_cudnn_find(void)
{
	static const struct cudnn_api api = {
		.cudnnCreate = open_handle,
		.cudnnDestroy = close_handle,
		.cudnnSetStream = set_stream,
		.cudnnBackendCreateDescriptor = create,
		.cudnnBackendDestroyDescriptor = destroy,
		.cudnnBackendFinalize = finalize,
		.cudnnBackendSetAttribute = set,
		.cudnnBackendGetAttribute = get,
		.cudnnBackendExecute = execute,
		.cudnnGetVersion = version,
	};

	fake_cudnn.finds++;
	return fake_cudnn.missing ? NULL : &api;
}
