/* Random plans of models with many blocks: which can be folded, and which cannot. */
#include "schedule/resolve/resolve.h"
#include "support.h"

/* Blocks with and without experts in turn, some dense ones first. */
static void add_experts(struct architecture *architecture, uint64_t *state)
{
	architecture->experts = 4;
	architecture->experts_per_token = 2;
	architecture->expert_ffn = 16;
	architecture->dense_layers = random_below(state, 1 + (architecture->layers > 2));
	architecture->moe_every = random_below(state, 4);
}

/* As T5: two stacks, the first block of each with a table of relative positions. */
static void add_encoder(struct architecture *architecture, uint64_t *state)
{
	architecture->family = FAMILY_T5;
	architecture->block = BLOCK_PRE_NORM;
	architecture->positions = POSITIONS_RELATIVE;
	architecture->relative_buckets = 32;
	architecture->layers += 2;
	architecture->encoder_layers = 1 + random_below(state, architecture->layers - 1);
}

struct model *deep_model(struct arena *arena, uint64_t *state)
{
	static const char *const presets[] = {"gpt2-124m", "llama-2-7b", "llama-3-70b", "mpt-7b"};
	struct error error = {0};
	struct model *model = NULL;
	if (random_below(state, 4) == 0)
		return partly_trained(arena, state,
			preset_model(arena, presets[random_below(state, COUNT_OF(presets))]));
	struct architecture architecture = random_model(arena, state)->architecture;
	architecture.layers = 1 + random_below(state, 40);
	if (random_below(state, 4) == 0)
		add_experts(&architecture, state);
	else if (random_below(state, 6) == 0)
		add_encoder(&architecture, state);
	if (!architecture_check(&architecture, NULL, &error) ||
		!model_build(arena, &architecture, &model, &error))
		fail_msg("%s", error.message);
	return partly_trained(arena, state, model);
}

/* One value for the first blocks or units, another one for the rest, as planners mix them. */
static struct plan split(struct arena *arena, uint64_t *state, struct plan plan,
	const struct model *model, const struct topology *topology)
{
	bool root;
	int64_t units = plan_units(&plan, model, &root), blocks = model->architecture.layers;
	int64_t at = random_below(state, blocks + 1);
	struct mix mix = mix_of(arena, &plan, blocks, units, root);
	enum checkpointing first = random_below(state, 3), second = random_below(state, 3);
	for (int64_t i = 0; i < blocks; i++)
		mix.checkpointing[i] = i < at ? first : second;
	for (int64_t i = at; i < units; i++) {
		mix.offload[i] = OFFLOAD_NONE;
		mix.reshard[i] = 0;
	}
	return mix_plan(arena, state, &mix, plan, model, topology);
}

struct plan deep_plan(struct arena *arena, uint64_t *state, const struct model *model,
	const struct topology *topology)
{
	struct plan plan = random_plan(arena, state, model, topology), with = plan;
	struct error error = {0};
	with.grad_accum = 1 + random_below(state, random_below(state, 2) ? 33 : 5);
	with.global_batch = with.micro_batch * with.grad_accum * plan_data_parallel(&with);
	with = plan_check(&with, model, topology, &error) ? with : plan;
	plan = with;
	if (strategy_is_hybrid(plan.strategy) && plan.mesh.replicate > 1)
		with.late_all_reduce = random_below(state, 2);
	with = plan_check(&with, model, topology, &error) ? with : plan;
	return random_below(state, 4) ? with : split(arena, state, with, model, topology);
}

bool divide_plan(struct arena *arena, uint64_t *state, const struct model *model,
	struct topology **topology, struct plan *plan)
{
	struct topology *larger = ARENA_NEW(arena, struct topology);
	struct plan with = *plan;
	struct error error = {0};
	*larger = **topology;
	with.mesh.tensor = INT64_C(1) << random_below(state, 3);
	with.mesh.context = INT64_C(1) << random_below(state, 3);
	with.sequence_parallel = with.mesh.tensor > 1 && random_below(state, 2);
	with.async_tensor = with.sequence_parallel && random_below(state, 2) &&
			    larger->device.kind == DEVICE_GPU &&
			    knob_honoured(KNOB_ASYNC_TENSOR, with.runtime, true);
	with.compile =
		with.compile || (with.async_tensor && !runtime_of(with.runtime)->layers_exchange);
	if (with.mesh.context > 1 && knob_table[KNOB_CONTEXT].runtimes >> with.runtime & 1) {
		with.context_method = (enum context_method)random_below(state, 3);
		knob_take_honoured(KNOB_CONTEXT_METHOD, &with);
	}
	larger->devices_per_node *= with.mesh.tensor * with.mesh.context;
	if (model->architecture.experts > 0 && random_below(state, 3) > 0) {
		with.mesh.expert = INT64_C(2) << random_below(state, 4);
		with.expert_tensor = random_below(state, 2) ? with.mesh.tensor : 1;
		with.expert_load = 1 + 0.25 * (double)random_below(state, 3);
		with.expert_overlap = with.grad_accum > 1 && random_below(state, 2) &&
				      knob_honoured(KNOB_EXPERT_OVERLAP, with.runtime, true) &&
				      !plan_checkpoints(&with, CHECKPOINTING_FULL);
	}
	if ((plan_ranks(&with) == plan_ranks(plan) && with.mesh.expert == 1) ||
		!plan_check(&with, model, larger, &error))
		return false;
	*plan = with;
	*topology = larger;
	return true;
}
