/* Names of the values of knobs, and what a strategy is. */
#include "schedule/plan/values.h"

static const struct {
	const char *name;
	bool shards, reshards, hybrid;
	int stage;
} strategies[] = {
#define X(suffix, name, shards, reshards, hybrid, stage) {name, shards, reshards, hybrid, stage},
	STRATEGIES(X)
#undef X
};

bool strategy_shards(enum strategy strategy)
{
	return strategies[strategy].shards;
}

bool strategy_reshards(enum strategy strategy)
{
	return strategies[strategy].reshards;
}

bool strategy_is_hybrid(enum strategy strategy)
{
	return strategies[strategy].hybrid;
}

int strategy_stage(enum strategy strategy)
{
	return strategies[strategy].stage;
}

bool strategy_keeps_parameters(enum strategy strategy)
{
	return strategies[strategy].stage == 1 || strategies[strategy].stage == 2;
}

const char *const strategy_names[] = {
#define X(suffix, name, shards, reshards, hybrid, stage) name,
	STRATEGIES(X)
#undef X
		NULL};

const char *const runtime_names[] = {
#define X(suffix, name) name,
	RUNTIMES(X)
#undef X
		NULL};

const char *const prefetch_names[] = {"none", "pre", "post", NULL};
const char *const checkpointing_names[] = {"none", "selective", "full", NULL};
const char *const loss_names[] = {
	"native", "upcast", "float", "parallel", "fused", "fused-linear", NULL};
const char *const allocator_names[] = {"segments", "expandable", NULL};
const char *const gradient_sums_names[] = {"tree", "exact", NULL};
const char *const gelu_place_names[] = {"kernel", "product", NULL};
const char *const optimizer_names[] = {"adamw-fused", "adamw-foreach", "adamw", "sgd", NULL};
const char *const offload_names[] = {"none", "optimizer", "parameters", "all", NULL};
