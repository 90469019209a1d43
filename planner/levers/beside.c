/* Levers that are not open knobs: the vocabulary's size in the model, library versions, and CUDA
 * graphs. */
#include "planner/levers/beside.h"
#include "schedule/resolve/resolve.h"

/* Pulls one lever: changes `with` and `plan`, and returns the options that do so. NULL: the lever
 * would change nothing. */
typedef const char *pull(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct question *with, struct plan *plan);

/* Rows of logits of an odd length slow down the matrix products of the head
 * (docs/cost-model.md). */
static const char *pad_vocabulary(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct question *with, struct plan *plan)
{
	int64_t vocab = vocab_padded(question->model->architecture.vocab);
	struct model *padded;
	(void)plan;
	if (chosen->prediction.time.unaligned_head <= 0 ||
		!model_pad(arena, question->model, vocab, &padded, NULL))
		return NULL;
	with->model = padded;
	return arena_printf(arena, "--vocab %lld", (long long)vocab);
}

/* Libraries that the question names, as new as they come; where it names none, a PyTorch whose own
 * attention is faster. */
static bool has_newer(const struct question *question, struct arena *arena, struct plan *plan)
{
	enum device_generation generation = question->topology->device.generation;
	struct libraries *libraries = &plan->libraries;
	if (question_gives(question, KNOB_LIBRARIES))
		return libraries_newest(libraries, generation, arena, libraries);
	return question_leaves(question, KNOB_ATTENTION) &&
	       libraries_of_attention(plan, question->model, generation, libraries);
}

static const char *renew_libraries(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct question *with, struct plan *plan)
{
	(void)chosen;
	if (!has_newer(question, arena, plan))
		return NULL;
	question_take(with, KNOB_LIBRARIES, plan);
	return lever_typed(KNOB_LIBRARIES, plan, arena);
}

/* All that can be captured of each block, where the host decides how long the step takes. */
static const char *capture_blocks(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct question *with, struct plan *plan)
{
	bool reads_drops = plan->capacity_factor > 0 && plan->expert_dispatch != DISPATCH_DEEPEP;
	bool again = plan->recompute_modules.of >> RECOMPUTE_MOE & 1;
	unsigned of = GRAPH_BIT(ATTN);
	if (!chosen->prediction.host_decides || !question_leaves(question, KNOB_CUDA_GRAPH_SCOPE))
		return NULL;
	if (model_has_graph_scope(question->model, GRAPH_MLP))
		of |= GRAPH_BIT(MLP);
	if (model_has_graph_scope(question->model, GRAPH_MOE_ROUTER) && !again)
		of |= GRAPH_BIT(MOE_ROUTER) | (reads_drops ? 0 : GRAPH_BIT(MOE_PREPROCESS));
	plan->cuda_graph_scope = graph_scopes_of(of, arena);
	question_take(with, KNOB_CUDA_GRAPH_SCOPE, plan);
	return lever_typed(KNOB_CUDA_GRAPH_SCOPE, plan, arena);
}

static const struct {
	enum knob_id id;
	pull *pull;
} levers[] = {{KNOB_COUNT, pad_vocabulary}, {KNOB_LIBRARIES, renew_libraries},
	{KNOB_CUDA_GRAPH_SCOPE, capture_blocks}};

bool beside_find(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct lever found[BESIDE_MOST], int *n, struct error *error)
{
	_Static_assert(COUNT_OF(levers) == BESIDE_MOST, "one row each");
	*n = 0;
	for (int i = 0; i < COUNT_OF(levers); i++) {
		struct question with = *question;
		struct evaluator evaluator = {.question = &with};
		struct plan plan = chosen->plan;
		struct prediction prediction;
		struct error mine = {0};
		const char *typed = levers[i].pull(question, chosen, arena, &with, &plan);
		if (typed == NULL || !plan_check(&plan, with.model, with.topology, &mine))
			continue;
		bool ok = evaluator_run(&evaluator, &plan, &prediction, &mine);
		if (ok && has_room(&with, &plan, &prediction))
			found[(*n)++] = (struct lever){.id = levers[i].id,
				.typed = typed,
				.gain = 1 - prediction.step_time / chosen->prediction.step_time,
				.step_time = prediction.step_time,
				.global_batch = plan.global_batch,
				.peak_memory_bytes = prediction.peak_memory_bytes};
		evaluator_finish(&evaluator);
		if (!ok && !error_is_refusal(&mine, error))
			return false;
	}
	return true;
}

/* A padded vocabulary is of no use with torch.compile, which pads the products itself. */
static bool is_of_use(const struct question *question, enum knob_id id)
{
	return id != KNOB_COUNT || !(question->freed & KNOB_BIT(KNOB_COMPILE));
}

const char *beside_pull(const struct answer *answer, struct arena *arena, struct question *question)
{
	const char *typed = "";
	for (int i = 0; i < COUNT_OF(levers); i++) {
		bool listed = false;
		for (int k = 0; k < answer->n_levers; k++)
			listed = listed || answer->levers[k].id == levers[i].id;
		struct plan plan = answer->chosen->plan;
		if (!listed || !is_of_use(question, levers[i].id))
			continue;
		const struct question asked = *question;
		bool told = levers[i].id < KNOB_COUNT && !question_gives(&asked, levers[i].id);
		const char *pulled = levers[i].pull(&asked, answer->chosen, arena, question, &plan);
		typed = told ? typed : arena_printf(arena, "%s %s", typed, pulled);
	}
	return typed;
}
