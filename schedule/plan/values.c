/* Says what a strategy is, and names these values. */
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

const char *const pipeline_schedule_names[] = {
#define X(suffix, name) name,
	PIPELINE_SCHEDULES(X)
#undef X
		NULL};

const char *const context_method_names[] = {
#define X(suffix, name) name,
	CONTEXT_METHODS(X)
#undef X
		NULL};
const char *const expert_dispatch_names[] = {
#define X(suffix, name) name,
	EXPERT_DISPATCHES(X)
#undef X
		NULL};

const char *const checkpointing_names[] = {"none", "selective", "full", NULL};
const char *const offload_names[] = {"none", "optimizer", "parameters", "all", NULL};
