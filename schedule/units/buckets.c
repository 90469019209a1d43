/* Makes the buckets of DDP and of ZeRO with whole parameters (docs/runtimes.md). */
#include "schedule/units/layout.h"

enum { MIB = 1 << 20 };

/* A bucket has 25 MiB. DDP's first one has 1 MiB unless `bucket_cap_mb` is given, as nanotron
 * does. */
static int64_t bucket_limit(const struct plan *plan, int bucket)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	int64_t bytes = dtype_bytes(zero != NULL ? plan->param_dtype : plan->master_dtype);
	return (bucket == 0 && zero == NULL ? 1 : 25) * MIB / bytes;
}

static bool has_embedding(const struct model *model)
{
	for (int m = 0; m < model->n_modules; m++)
		if (model->modules[m].kind == MODULE_EMBEDDING)
			return true;
	return false;
}

/* A bucket of Megatron-LM closes when it has so many elements. All of a stage is one bucket where
 * nothing is reduced before backward ends, and also behind the first stage of a pipeline, because
 * others wait for the reductions there (distributed_data_parallel.py, disable_bucketing). */
static int64_t filled_elements(const struct plan *plan, const struct model *model, int chunk)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	if (plan->overlap == OVERLAP_NONE || chunk > 0 || !has_embedding(model))
		return INT64_MAX;
	return max_i64(
		zero->filled_elements, zero->filled_elements_a_rank * plan_reduce_ranks(plan));
}

/* Returns the trained parameter before p, or -1. */
static int trained_before(const struct model *model, int p)
{
	do
		p--;
	while (p >= 0 && !model->parameters[p].trainable);
	return p;
}

static void begin_unit(
	struct unit *unit, const struct model *model, const char *name, struct unit_slice *slices)
{
	unit->slices = slices;
	unit->name = name;
	unit->end_module = model->n_modules;
}

/* Makes the unit of all that no bucket holds. */
static int add_frozen(const struct plan *plan, const struct model *model, struct unit *unit,
	struct unit_slice *slices)
{
	begin_unit(unit, model, "frozen", slices);
	for (int p = 0; p < model->n_parameters; p++)
		if (!model->parameters[p].trainable)
			unit_add_slice(unit, model, p);
	unit_lay_out_flat(unit, model, 1, plan_shard_ranks(plan));
	return unit->n_slices > 0;
}

/* Megatron-LM has separate buffers for experts that ranks share out. */
static bool is_apart(const struct plan *plan, const struct model *model, int p)
{
	return plan->mesh.expert > 1 &&
	       module_kind_is_of_experts(model->modules[model->parameters[p].module].kind);
}

/* Returns the trained parameter before p that is one of experts, or of the rest, or -1. */
static int before(const struct plan *plan, const struct model *model, int p, bool of_experts)
{
	do
		p = trained_before(model, p);
	while (p >= 0 && is_apart(plan, model, p) != of_experts);
	return p;
}

struct building {
	const struct plan *plan;
	const struct model *model;
	const int *chunks; /* per parameter, or NULL: which of the rank's stages it belongs to */
	struct arena *arena;
	struct unit *units;
	struct unit_slice *slices;
	int n, used;
};

static int chunk_of(const struct building *b, int p)
{
	return b->chunks != NULL ? b->chunks[p] : 0;
}

/* Does the bucket close behind parameter `last`, before p, the next one in backward's order? p is
 * -1 behind the last one of all. */
static bool closes(const struct building *b, int bucket, int last, int p, int64_t elements)
{
	const struct zero_rules *zero = runtime_of(b->plan->runtime)->zero;
	if (p < 0)
		return true;
	if (zero != NULL && zero->filled_elements > 0) {
		bool ends = b->plan->overlap != OVERLAP_NONE && chunk_of(b, last) != chunk_of(b, p);
		return ends || elements >= filled_elements(b->plan, b->model, chunk_of(b, p));
	}
	if (zero == NULL || b->plan->strategy == STRATEGY_NO_SHARD)
		return elements >= bucket_limit(b->plan, bucket);
	return zero->bucket_elements > 0 &&
	       elements + b->model->parameters[p].elements > zero->bucket_elements;
}

static void add_buckets(struct building *b, bool of_experts)
{
	int first = b->n, p = before(b->plan, b->model, b->model->n_parameters, of_experts);
	while (p >= 0) {
		struct unit *bucket = &b->units[b->n];
		if (bucket->slices == NULL)
			begin_unit(bucket, b->model, arena_printf(b->arena, "bucket%d", b->n),
				b->slices + b->used);
		bucket->of_experts = of_experts;
		unit_add_slice(bucket, b->model, p);
		b->used++;
		int last = p;
		p = before(b->plan, b->model, p, of_experts);
		if (!closes(b, b->n - first, last, p, bucket->parameters))
			continue;
		unit_lay_out_flat(bucket, b->model, 1, unit_shard_ranks(bucket, b->plan));
		b->n++;
	}
}

int buckets_build(const struct plan *plan, const struct model *model, const int *chunks,
	struct arena *arena, struct unit **units)
{
	struct building b = {.plan = plan, .model = model, .chunks = chunks, .arena = arena};
	b.slices = ARENA_ARRAY(arena, struct unit_slice, model->n_parameters);
	*units = b.units = ARENA_ARRAY(arena, struct unit, model->n_parameters + 1);
	add_buckets(&b, false);
	add_buckets(&b, true);
	b.n += add_frozen(plan, model, &b.units[b.n], b.slices + b.used);
	units_count_fp8(plan, model, b.units, b.n);
	units_choose(plan, b.units, b.n);
	return b.n;
}
