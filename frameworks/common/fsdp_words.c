/* What several frameworks have in the same words: strategy, mesh and wrapping of FSDP. */
#include <string.h>
#include <strings.h>

#include "frameworks/common/reading.h"
#include "frameworks/common/writing.h"

void import_fsdp2_strategy(
	struct importing *importing, bool reshards, bool hybrid, const char *path)
{
	import_set(importing, KNOB_RUNTIME, "pytorch-fsdp2", NULL);
	import_set(importing, KNOB_STRATEGY,
		hybrid     ? reshards ? "HYBRID_SHARD" : "HYBRID_SHARD_ZERO2"
		: reshards ? "FULL_SHARD"
			   : "SHARD_GRAD_OP",
		path);
}

static int64_t ranks_so_far(const struct importing *importing)
{
	const struct imported *imported = importing->imported;
	int64_t ranks;

	for (int i = 0; i < imported->n_settings; i++) {
		if (strcmp(imported->settings[i].option, "gpus") == 0 &&
			parse_int(imported->settings[i].value, &ranks))
			return ranks;
	}
	return 0;
}

bool import_mesh(struct importing *importing, int64_t replicate, int64_t shard, const char *path,
	bool *hybrid, struct error *error)
{
	int64_t beside = max_i64(importing->beside_data, 1);
	int64_t ranks = ranks_so_far(importing) / beside, product;

	replicate = max_i64(replicate, 1);
	if (shard <= 0 && ranks > 0 && ranks % replicate == 0)
		shard = ranks / replicate;
	*hybrid = replicate > 1 && shard != 1;
	if (shard > 0) {
		if (!checked_mul(replicate, shard, &product) || (ranks > 0 && product != ranks))
			return import_fail(importing, path, error,
				"replicate %lld x shard %lld, expected %lld processes in all",
				(long long)replicate, (long long)shard, (long long)ranks);
		if (ranks == 0)
			import_set_count(importing, KEY_GPUS, product * beside, path);
	}
	if (*hybrid && shard > 0)
		import_set_count(importing, KNOB_SHARD_GROUP, shard, path);
	else if (*hybrid)
		importing->imported->replicas = replicate;
	return true;
}

bool import_fsdp1_strategy(
	struct importing *importing, const char *path, const char *otherwise, struct error *error)
{
	static const char *const names[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
		"HYBRID_SHARD", "HYBRID_SHARD_ZERO2", NULL};
	const char *text = import_text(importing, path, otherwise);

	for (int i = 0; names[i] != NULL; i++) {
		const char number[] = {(char)('1' + i), '\0'};
		bool hidden = text[0] == '_' && strcasecmp(text + 1, names[i]) == 0;
		if (strcasecmp(text, names[i]) != 0 && strcmp(text, number) != 0 && !hidden)
			continue;
		import_set(importing, KNOB_STRATEGY, names[i],
			import_find(importing, path) != NULL ? path : NULL);
		return true;
	}
	return import_fail(importing, path, error,
		"expected FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2, "
		"got \"%.60s\"",
		text);
}

bool import_wrap(struct importing *importing, const char *policy, const char *least,
	const char *no_policy, struct error *error)
{
	const char *text = import_text(importing, policy, no_policy);
	const char *path = import_find(importing, policy) != NULL ? policy : NULL;
	int64_t count;

	if (strcasecmp(text, "TRANSFORMER_BASED_WRAP") == 0) {
		import_set(importing, KNOB_WRAP, "block", path);
	} else if (strcasecmp(text, "NO_WRAP") == 0) {
		import_set(importing, KNOB_WRAP, "model", path);
	} else if (strcasecmp(text, "SIZE_BASED_WRAP") == 0) {
		if (!import_count(importing, least, &count, 100000000, error))
			return false;
		import_set(importing, KNOB_WRAP,
			arena_printf(importing->arena, "size:%lld", (long long)count), path);
	} else {
		return import_fail(importing, policy, error,
			"expected TRANSFORMER_BASED_WRAP, "
			"SIZE_BASED_WRAP or NO_WRAP, got \"%.60s\"",
			text);
	}
	return true;
}

const char *fsdp2_refuses(const struct plan *plan)
{
	const struct mesh *mesh = &plan->mesh;

	if (mesh->tensor * mesh->context == 1)
		return NULL;
	if (plan->strategy == STRATEGY_NO_SHARD)
		return "tensor and context ranks come with FSDP2 alone; use --strategy FULL_SHARD";
	if (mesh->shard * mesh->context == 1)
		return "FSDP2 has no ranks to shard over beside tensor ranks; use fewer of them";
	if (mesh->replicate > 1 && mesh->shard == 1)
		return "replicas with tensor or context ranks need --shard-group above 1";
	return NULL;
}

bool import_shards_itself(const struct importing *importing, struct error *error)
{
	const struct node *node = import_find(importing, "deepspeed*");

	return import_is_unset(node) ||
	       import_fail(importing, "deepspeed*", error,
		       "DeepSpeed shards this model, "
		       "as its own configuration says; import that one, "
		       "with the batch of this file (--micro-batch, --grad-accum)");
}
