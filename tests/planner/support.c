#include "support.h"

int64_t random_below(uint64_t *state, int64_t limit)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (int64_t)(*state % (uint64_t)limit);
}

struct model *load_model(struct arena *arena, const char *name)
{
	struct error error = {0};
	struct model *model = NULL;
	if (!model_load_preset(arena, name, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

struct topology *load_topology(struct arena *arena, const char *name)
{
	struct error error = {0};
	struct topology *topology = NULL;
	if (!topology_load_name(arena, name, &topology, &error))
		fail_msg("%s", error.message);
	return topology;
}

void set_choice(struct question *question, struct arena *arena, const char *name, const char *value)
{
	struct error error = {0};
	if (!question_set_by_name(question, name, name, value, arena, &error))
		fail_msg("%s", error.message);
}

void set_choices(struct question *question, struct arena *arena, int n, const char *const *options)
{
	for (int i = 0; i + 1 < n; i += 2)
		set_choice(question, arena, options[i], options[i + 1]);
}

void restrict_to(struct question *question, struct arena *arena, enum knob_id id, int n,
	const char *const *values)
{
	struct error error = {0};
	for (int i = 0; i < n; i++)
		if (!question_restrict(question, id, false, values[i], values[i], arena, &error))
			fail_msg("%s", error.message);
}

struct answer ask(const struct question *question, struct arena *arena)
{
	struct error error = {0};
	struct answer answer;
	if (!planner_plan(question, arena, &answer, &error))
		fail_msg("%s", error.message);
	return answer;
}

const struct sensitivity *sensitivity_row(
	const struct answer *answer, const char *knob, const char *value)
{
	for (int i = 0; i < answer->n_sensitivities; i++)
		if (strcmp(answer->sensitivities[i].knob, knob) == 0 &&
			strcmp(answer->sensitivities[i].value, value) == 0)
			return &answer->sensitivities[i];
	return NULL;
}

/* --- random questions ----------------------------------------------------------------------------
 */

static struct model *random_model(uint64_t *state, int64_t layers, struct arena *arena)
{
	struct error error = {0};
	struct model *model = NULL;
	struct architecture a = {.name = "random", .norm_epsilon = 1e-5, .rope_theta = 1e4};
	a.family = FAMILY_LLAMA;
	a.layers = 1 + random_below(state, layers);
	a.kv_heads = 1 + random_below(state, 3);
	a.heads = a.kv_heads * (1 + random_below(state, 3));
	a.head_dim = 16 * (1 + random_below(state, 6));
	a.hidden = a.heads * a.head_dim;
	a.ffn = 64 * (1 + random_below(state, 20));
	a.vocab = 100 + random_below(state, 20000);
	a.context = 64 << random_below(state, 4);
	a.positions = (enum positions)random_below(state, 3);
	a.norm = (enum norm_kind)random_below(state, 2);
	a.mlp = (enum mlp_kind)random_below(state, 2);
	a.qkv_bias = random_below(state, 2);
	a.tied_head = random_below(state, 2);
	a.attention_window = a.layers % 2 != 0 ? a.context / 3 : 0;
	a.full_attention_every = a.attention_window > 0 ? a.kv_heads - 1 : 0;
	if (!architecture_check(&a, NULL, &error) || !model_build(arena, &a, &model, &error))
		fail_msg("%s", error.message);
	return model;
}

/* CPU devices that share one machine, as `local` describes it. */
static void make_local(struct topology *topology, int64_t devices)
{
	struct error error = {0};
	topology->name = "local";
	topology->devices_per_node = devices;
	topology->device = (struct device){.name = "CPU",
		.kind = DEVICE_CPU,
		.generation = GENERATION_CPU,
		.memory_bytes = INT64_C(32) << 30,
		.memory_bandwidth = 20e9,
		.fp32_flops = 50e9,
		.multiprocessors = 4};
	topology->fabric =
		(struct fabric){.kind = FABRIC_SHARED_MEMORY, .bandwidth = 10e9, .latency = 1e-6};
	topology->network = (struct network){.kind = NETWORK_NONE, .oversubscription = 1};
	topology->host = (struct host){.memory_bytes = INT64_C(32) << 30,
		.memory_bandwidth = 20e9,
		.cores = 4,
		.pcie_bandwidth = 20e9};
	topology->shares_host = true;
	if (!topology_check(topology, NULL, &error))
		fail_msg("%s", error.message);
}

static struct topology *random_topology(uint64_t *state, struct arena *arena)
{
	static const char *const names[] = {"dgx-a100-80gb", "2xdgx-a100-80gb", "rtx4090-8x",
		"3xdgx-h100", "2xp4d.24xlarge", "dgx-v100", "dgx-a100-40gb"};
	int64_t name = random_below(state, COUNT_OF(names));
	struct topology *topology = load_topology(arena, names[name]);
	struct error error = {0};
	int64_t devices = INT64_C(1) << random_below(state, 4);
	if (name == COUNT_OF(names) - 1)
		make_local(topology, devices);
	if (topology->nodes == 1 && !topology_use_devices(topology, devices, &error))
		fail_msg("%s", error.message);
	if (random_below(state, 3) == 0)
		topology->network.nic_bandwidth /= 16;
	return topology;
}

static void fix_batch(struct question *question, uint64_t *state, struct arena *arena)
{
	int64_t ranks = topology_devices(question->topology);
	static const int64_t per_rank[] = {1, 2, 4, 6, 8};
	int64_t global = ranks * per_rank[random_below(state, COUNT_OF(per_rank))];
	const char *text = arena_printf(arena, "%lld", (long long)global);
	if (random_below(state, 4) > 0)
		set_choice(question, arena, "global_batch", text);
	else
		set_choice(question, arena, "micro_batch", "2");
}

static void fix_knobs(struct question *question, uint64_t *state, struct arena *arena)
{
	static const char *const runtimes[] = {"pytorch-fsdp1", "pytorch-fsdp2", "shardplan"};
	static const struct {
		const char *name, *value;
	} knobs[] = {{"wrap", "block"}, {"wrap", "blocks:2"}, {"prefetch", "pre"},
		{"forward_prefetch", "false"}, {"activation_checkpointing", "full"},
		{"activation_checkpointing", "none"}, {"sync_each_micro_batch", "true"},
		{"reduce_dtype", "fp32"}, {"limit_all_gathers", "true"},
		{"strategy", "FULL_SHARD"}};
	int64_t runtime = random_below(state, COUNT_OF(runtimes));
	if (question->topology->device.kind == DEVICE_CPU)
		runtime = 2; /* what a CPU runs */
	set_choice(question, arena, "runtime", runtimes[runtime]);
	for (int i = 0; i < COUNT_OF(knobs); i++)
		if (random_below(state, 4) == 0 && (runtime != 1 || i != 8))
			set_choice(question, arena, knobs[i].name, knobs[i].value);
	if (*state % 7 == 0) /* draws nothing: the questions stay the same */
		set_choice(question, arena, "loader_rate", *state % 2 == 0 ? "20000" : "1000000");
	if (*state % 5 == 1)
		set_choice(question, arena, "activation_offload",
			*state % 2 == 0 ? "checkpoints" : "all");
	static const char *offloads[] = {"none", "parameters"};
	if (random_below(state, 4) == 0)
		question->strategies = 1 + (unsigned)random_below(state, 31);
	if (question->topology->device.kind == DEVICE_GPU && runtime == 1 &&
		random_below(state, 4) == 0)
		restrict_to(question, arena, KNOB_CPU_OFFLOAD, 2, offloads);
}

/* Some of the memory that FULL_SHARD needs with a micro-batch of 1, so that plans come on both
 * sides of the limit; sometimes nothing fits. */
static int64_t random_limit(const struct question *question, uint64_t *state)
{
	int64_t states = 16 * question->model->parameter_count;
	bool gpu = question->topology->device.kind == DEVICE_GPU;
	int64_t fixed = (gpu ? INT64_C(800) : INT64_C(50)) << 20;
	return fixed + states / 4 + random_below(state, 3 * states);
}

static struct question question_with(uint64_t *state, int64_t layers, struct arena *arena)
{
	struct question question = {0};
	question.model = random_model(state, layers, arena);
	question.topology = random_topology(state, arena);
	question.objective = (enum objective)random_below(state, 3);
	fix_batch(&question, state, arena);
	fix_knobs(&question, state, arena);
	if (random_below(state, 3) > 0)
		question.memory_limit_bytes = random_limit(&question, state);
	question.simplicity = random_below(state, 2) > 0 ? 0.01 : 0;
	return question;
}

struct question random_question(uint64_t *state, struct arena *arena)
{
	return question_with(state, 5, arena);
}

struct question random_small_question(uint64_t *state, struct arena *arena)
{
	static const struct {
		const char *name, *values[3];
	} knobs[] = {{"wrap", {"block", "blocks:2", "model"}},
		{"prefetch", {"pre", "post", "none"}},
		{"sync_each_micro_batch", {"true", "false", "true"}}};
	struct question question = question_with(state, 3, arena);
	for (int i = 0; i < COUNT_OF(knobs); i++) {
		bool open = !question_gives(&question, knob_find(knobs[i].name));
		int64_t value = random_below(state, 5);
		if (open && value < COUNT_OF(knobs[i].values))
			set_choice(&question, arena, knobs[i].name, knobs[i].values[value]);
	}
	return question;
}

void describe_question(const struct question *question, struct text *text)
{
	const struct architecture *a = &question->model->architecture;
	text_printf(text,
		"layers %lld hidden %lld ffn %lld vocab %lld context %lld on %s (%lld devices), "
		"limit %lld, objective %s, strategies %x:",
		(long long)a->layers, (long long)a->hidden, (long long)a->ffn, (long long)a->vocab,
		(long long)a->context, question->topology->name,
		(long long)topology_devices(question->topology),
		(long long)question->memory_limit_bytes, objective_names[question->objective],
		question->strategies);
	for (int i = 0; i < KNOB_COUNT; i++) {
		if (!question_gives(question, (enum knob_id)i))
			continue;
		text_printf(text, " %s=", knob_table[i].field.name);
		knob_print((enum knob_id)i, &question->asked, text);
	}
}

/* --- every plan ----------------------------------------------------------------------------------
 */

void rank_all(struct search *search, struct ranking *all, int64_t least[STRATEGY_COUNT])
{
	struct space *space = &search->space;
	ranking_init(all, search->question->objective, search->question->simplicity);
	for (int s = 0; s < STRATEGY_COUNT; s++)
		least[s] = INT64_MAX;
	for (int i = 0; i < space->n; i++) {
		struct prediction prediction;
		struct error error = {0};
		const struct plan *plan = &space->plans[i];
		if (!evaluator_run(&search->evaluator, plan, &prediction, &error))
			fail_msg("%s", error.message);
		struct ranked ranked = {.plan = i,
			.strategy = plan->strategy,
			.tight = !has_room(search->question, plan, &prediction),
			.divided = has_axes(plan),
			.departures = space->departures[i],
			.costs = costs_of(search->question, plan, &prediction)};
		least[plan->strategy] =
			min_i64(least[plan->strategy], ranked.costs.of[COST_MEMORY]);
		if (prediction.fits != FITS_NO)
			ranking_add(all, &ranked);
	}
}

/* --- answers -------------------------------------------------------------------------------------
 */

const struct candidate *find_strategy(const struct answer *answer, enum strategy strategy)
{
	if (answer->chosen != NULL && answer->chosen->plan.strategy == strategy)
		return answer->chosen;
	for (int i = 0; i < answer->n_alternatives; i++)
		if (answer->alternatives[i].plan.strategy == strategy)
			return &answer->alternatives[i];
	return NULL;
}

static void print_candidate(const struct candidate *candidate, struct text *text)
{
	plan_summary(&candidate->plan, text);
	text_printf(text, " | %s | %s | ", outcome_names[candidate->outcome], candidate->why_not);
	text_number(text, candidate->prediction.step_time);
	text_printf(text, " %lld\n", (long long)candidate->prediction.peak_memory_bytes);
}

void print_answer(const struct answer *answer, struct text *text)
{
	if (answer->chosen != NULL)
		print_candidate(answer->chosen, text);
	for (int i = 0; i < answer->n_alternatives; i++)
		print_candidate(&answer->alternatives[i], text);
	for (int i = 0; i < answer->n_options; i++) {
		text_printf(text, "%s ", answer->options[i].typed);
		text_number(text, answer->options[i].prediction.step_time);
		text_printf(text, " %.6f\n", answer->options[i].gain);
	}
	for (int i = 0; i < answer->n_reasons; i++)
		text_printf(text, "%s\n", answer->reasons[i]);
	for (int i = 0; i < answer->n_thresholds; i++)
		text_printf(text, "%s\n", answer->thresholds[i].sentence);
	for (int i = 0; i < answer->n_sensitivities; i++) {
		const struct sensitivity *row = &answer->sensitivities[i];
		text_printf(text, "%s %s %s ", row->knob, row->value, row->note);
		text_number(text, row->step_time);
		text_printf(text, " %lld\n", (long long)row->peak_memory_bytes);
	}
	text_printf(text, "%lld %lld ", (long long)answer->evaluated, (long long)answer->pruned);
	text_number(text, answer->gap);
	text_number(text, answer->bound);
}
