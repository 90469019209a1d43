/* DDP's buckets (docs/runtimes.md). */
#include "schedule/units/layout.h"

enum { MIB = 1 << 20 };

/* DDP: 25 MiB, the first 1 MiB unless `bucket_cap_mb` is given, as nanotron does. */
static int64_t bucket_limit(const struct plan *plan, int bucket)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	int64_t bytes = dtype_bytes(zero != NULL ? plan->param_dtype : plan->master_dtype);
	return (bucket == 0 && zero == NULL ? 1 : 25) * MIB / bytes;
}

/* Does the bucket close behind parameter p, the next one in backward's order being p - 1? */
static bool closes(
	const struct plan *plan, const struct model *model, int bucket, int p, int64_t elements)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	if (p == 0)
		return true;
	if (zero == NULL || plan->strategy == STRATEGY_NO_SHARD)
		return elements >= bucket_limit(plan, bucket);
	return zero->bucket_elements > 0 &&
	       elements + model->parameters[p - 1].elements > zero->bucket_elements;
}

int buckets_build(const struct plan *plan, const struct model *model, struct arena *arena,
	struct unit **units)
{
	int n = 0, used = 0;
	struct text name = {0};
	struct unit_slice *slices = ARENA_ARRAY(arena, struct unit_slice, model->n_parameters);
	*units = ARENA_ARRAY(arena, struct unit, model->n_parameters);
	for (int p = model->n_parameters - 1; p >= 0; p--) {
		struct unit *bucket = &(*units)[n];
		if (bucket->slices == NULL) {
			bucket->slices = slices + used;
			text_clear(&name);
			text_add(&name, "bucket");
			text_int(&name, n);
			bucket->name = arena_strdup(arena, text_string(&name));
			bucket->end_module = model->n_modules;
		}
		unit_add_slice(bucket, model, p);
		used++;
		if (!closes(plan, model, n, p, bucket->parameters))
			continue;
		unit_lay_out_flat(bucket, 1, plan->mesh.shard);
		n++;
	}
	text_finish(&name);
	units_choose(plan, *units, n);
	return n;
}
