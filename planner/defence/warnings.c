/* One row for each warning: when it is due, and its sentence. No row should be due for an ordinary
 * question, because nobody reads what is always said. */
#include "planner/defence/warnings.h"

#include <string.h>

struct subject {
	const struct question *question;
	const struct answer *answer;
	const struct plan *plan;
	const struct prediction *prediction;
	const struct topology *topology;
	const struct architecture *architecture;
	double parameters;
};

/* --- the batch -------------------------------------------------------------------------------- */

/* Tokens of the largest steps that published runs were trained with from scratch, by kind of model.
 * Dense: Llama 3 405B, 16 M from 2.87 T tokens on (arXiv:2407.21783, section 3.4.1), 2048 sequences
 * of 8192; LLaMA had 4 M (arXiv:2302.13971, table 2), GPT-3 3.2 M (arXiv:2005.14165, table 2.1).
 * Experts: DeepSeek-V3, 15,360 sequences of 4096 (arXiv:2412.19437, section 4.2). */
static const struct known_batch {
	double tokens;
	const char *model;
} known_dense = {2048.0 * 8192, "Llama 3 405B"}, known_experts = {15360.0 * 4096, "DeepSeek-V3"};

static bool batch_is_beyond_what_is_known(const struct subject *subject, struct text *sentence)
{
	const struct known_batch *known =
		subject->architecture->experts > 0 ? &known_experts : &known_dense;
	double tokens = plan_tokens(subject->plan);
	char now[32], most[32];
	if (tokens <= known->tokens)
		return false;
	format_count(now, tokens);
	format_count(most, known->tokens);
	if (subject->plan->global_batch == plan_data_parallel(subject->plan))
		text_printf(sentence,
			"one sequence a device is a step of %s tokens; %s had %s at most", now,
			known->model, most);
	else
		text_printf(sentence, "a step has %s tokens; %s was trained with %s at most", now,
			known->model, most);
	return true;
}

/* --- data parallelism alone ------------------------------------------------------------------- */

/* The largest model of the paper about FSDP, trained by it alone on 128 to 512 GPUs: GPT-175B
 * (arXiv:2304.11277, section 5.4). Above, published runs split the model too: Nemotron-4 340B by
 * tensor 8 and pipeline 12 (arXiv:2406.11704), Llama 3 405B by tensor 8 and pipeline 16
 * (arXiv:2407.21783, table 4). */
#define LARGEST_BY_FSDP 175e9

static bool model_is_beyond_data_parallelism(const struct subject *subject, struct text *sentence)
{
	char count[32];
	/* The rounded name of the model that was: GPT-175B has 174.6 to 175.2 B. */
	if (subject->parameters <= 1.01 * LARGEST_BY_FSDP || plan_divides(subject->plan))
		return false;
	text_printf(sentence,
		"data parallelism alone is the wrong tool for %s parameters (FSDP's paper: 175 B)",
		format_count(count, subject->parameters));
	return true;
}

/* A share of the step. It is a judgement, because papers publish runs that scale: with more than a
 * quarter of the step exposed, tensor, pipeline or context parallelism saves more than it costs. */
#define MUCH_EXPOSED 0.25

/* Tensor ranks exchange tokens in every layer, which only the links of a node are fast enough for.
 */
static bool node_has_tensor_ranks(const struct subject *subject)
{
	return knob_table[KNOB_TENSOR].runtimes >> subject->plan->runtime & 1 &&
	       subject->topology->devices_per_node % 2 == 0 &&
	       subject->architecture->heads % 2 == 0;
}

static bool communication_rules(const struct subject *subject, struct text *sentence)
{
	double share =
		subject->prediction->time.exposed_communication / subject->prediction->step_time;
	if (share <= MUCH_EXPOSED || plan_divides(subject->plan))
		return false;
	text_printf(sentence,
		"%.0f %% of a step waits for communication: a larger --global-batch%s may help",
		100 * share, node_has_tensor_ranks(subject) ? " or --tensor" : "");
	return true;
}

/* --- experts ---------------------------------------------------------------------------------- */

/* Gathers of experts that expose less than this share of a step are not worth a warning. */
#define FEW_EXPOSED 0.05

/* DeepSeek-V3 keeps experts on 64 GPUs (arXiv:2412.19437, section 3.2); docs/models.md says what
 * times of experts assume. */
static bool experts_are_gathered(const struct subject *subject, struct text *sentence)
{
	const struct architecture *a = subject->architecture;
	const struct prediction *p = subject->prediction;
	bool searched =
		(subject->topology->nodes > 1 || subject->topology->device.kind == DEVICE_GPU) &&
		!question_gives(subject->question, KNOB_EXPERT); /* and lost */
	bool offered = (knob_table[KNOB_EXPERT].runtimes >> subject->plan->runtime & 1) != 0;
	if (a->experts == 0 || searched || !offered ||
		p->time.exposed_communication < FEW_EXPOSED * p->step_time ||
		subject->plan->strategy == STRATEGY_NO_SHARD || subject->plan->mesh.shard == 1 ||
		subject->plan->mesh.expert > 1)
		return false;
	text_printf(sentence,
		"%lld experts are gathered for %lld a token; "
		"expert parallelism (--expert N) moves tokens",
		(long long)a->experts, (long long)a->experts_per_token);
	return true;
}

/* --- documents -------------------------------------------------------------------------------- */

/* A share of the FLOPs from which on it decides whether attention keeps documents apart. Few single
 * documents are so long (Llama 3 masked its documents: arXiv:2407.21783, section 3.2). */
#define MUCH_ATTENTION 0.4

static bool attention_sees_all(const struct subject *subject, struct text *sentence)
{
	const struct plan *plan = subject->plan;
	const struct model *model = subject->question->model;
	double all = model_flops_causal(model, plan->seq_len);
	double share = 1 - model_flops_6n(model) / all;
	bool offered = knob_honoured(KNOB_DOCUMENT_LEN, plan->runtime, 1) &&
		       plan->attention != ATTENTION_EAGER &&
		       !question_gives(subject->question, KNOB_DOCUMENT_LEN);
	if (!offered || share < MUCH_ATTENTION)
		return false;
	text_printf(sentence,
		"attention to all %lld tokens is %.0f %% of the FLOPs; "
		"--document-len N masks documents",
		(long long)plan->seq_len, 100 * share);
	return true;
}

/* --- the machine ------------------------------------------------------------------------------ */

static bool has_measured_network(const struct topology *topology)
{
	const struct calibration *c = &topology->calibration;
	for (int i = 0; i < c->n_collectives; i++)
		if (c->collectives[i].nodes > 1)
			return true;
	return false;
}

/* 92 to 95 % of the NICs is what the cost model takes of a network by TCP (simulator/nccl/time.c).
 * One thread and socket of NCCL often get less; NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD are
 * its manual's answer. */
static bool tcp_is_taken_at_its_word(const struct subject *subject, struct text *sentence)
{
	const struct topology *topology = subject->topology;
	if (topology->nodes == 1 || topology->network.kind != NETWORK_ETHERNET ||
		has_measured_network(topology))
		return false;
	text_add(sentence, "TCP is taken to deliver 95 % of the NICs and often gives less: "
			   "measure with nccl-tests");
	return true;
}

/* Relative half width of the 80 % interval from which on the figures are those of a datasheet only:
 * devices with published steps have 6 to 10 %, others 30 % (docs/cost-model.md). */
#define WIDE 0.25
enum { NAMED_MOST = 3 };

/* Keys of an imported topology that nobody knows: "fabric.latency, host.pcie_bandwidth". */
static int name_assumed(const struct topology *topology, struct text *names)
{
	int n = 0;
	for (int i = 0; i < topology->n_provenance; i++) {
		const struct provenance *from = &topology->provenance[i];
		if (strncmp(from->text, "assumed", strlen("assumed")) != 0)
			continue;
		if (n < NAMED_MOST)
			text_printf(names, "%s%s", n > 0 ? ", " : "", from->key);
		n++;
	}
	if (n > NAMED_MOST)
		text_printf(names, " and %d more", n - NAMED_MOST);
	return n;
}

static bool machine_is_not_measured(const struct subject *subject, struct text *sentence)
{
	const struct topology *topology = subject->topology;
	const struct prediction *p = subject->prediction;
	struct text names = {0};
	char low[32], high[32];
	bool wide = p->step_time_high > (1 + WIDE) * p->step_time;
	if (topology->calibration.measured || topology->device.kind != DEVICE_GPU)
		return false;
	int n = name_assumed(topology, &names);
	if (n > 0)
		text_printf(sentence, "assumed, not measured: %s", text_string(&names));
	else if (wide && p->host_decides)
		text_printf(sentence,
			"the host decides this step, and hosts differ: it may take %s to %s",
			format_seconds(low, p->step_time_low),
			format_seconds(high, p->step_time_high));
	else if (wide)
		text_printf(sentence,
			"%.40s is known by its datasheet alone: a step may take %s to %s",
			topology->device.name, format_seconds(low, p->step_time_low),
			format_seconds(high, p->step_time_high));
	text_finish(&names);
	return n > 0 || wide;
}

/* --- fp8 -------------------------------------------------------------------------------------- */

static bool casts_are_eager(const struct subject *subject, struct text *sentence)
{
	const struct plan *plan = subject->plan;
	bool has_kernels = plan->runtime == RUNTIME_SHARDPLAN || plan->fp8 == FP8_MXFP8 ||
			   runtime_of(plan->runtime)->keeps_fp8_copies;
	if (plan->fp8 == FP8_OFF || plan->compile || has_kernels)
		return false;
	text_add(sentence, "casts to fp8 that are not compiled cost more than products save; "
			   "use --compile on");
	return true;
}

/* --- what was assumed for want of an option --------------------------------------------------- */

/* Warns if another strategy is faster within this factor of a value that the user did not give. */
#define NEAR 2.0

static const struct {
	enum knob_id knob;
	const char *unit; /* of the threshold */
	const char *one;
	const char *what;
} assumed[] = {
	{KNOB_SEQ_LEN, "tokens", "token", "sequences"},
	{KNOB_GLOBAL_BATCH, "micro-batches", "micro-batch", "steps"},
};

/* Is the value one that the model can be trained with? A sequence is no longer than its context. */
static bool is_near(const struct subject *subject, const struct threshold *threshold)
{
	bool tokens = strcmp(threshold->unit, "tokens") == 0;
	if (threshold->becomes == NULL || threshold->near_tie ||
		threshold->at < threshold->now / NEAR || threshold->at > NEAR * threshold->now)
		return false;
	return !tokens || threshold->at <= (double)subject->architecture->context;
}

static bool assumption_decides(const struct subject *subject, struct text *sentence)
{
	for (int i = 0; i < COUNT_OF(assumed); i++) {
		if (question_gives(subject->question, assumed[i].knob))
			continue;
		for (int t = 0; t < subject->answer->n_thresholds; t++) {
			const struct threshold *threshold = &subject->answer->thresholds[t];
			if (strcmp(threshold->unit, assumed[i].unit) != 0 ||
				!is_near(subject, threshold))
				continue;
			text_printf(sentence, "%s of %.0f %s are assumed; %s %.0f %s is faster",
				assumed[i].what, threshold->now,
				threshold->now == 1 ? assumed[i].one : threshold->unit,
				threshold->at > threshold->now ? "from" : "up to", threshold->at,
				threshold->becomes);
			return true;
		}
	}
	return false;
}

/* --- the table -------------------------------------------------------------------------------- */

/* The most important first. */
static const struct {
	const char *id;
	bool (*is_due)(const struct subject *subject, struct text *sentence);
} rows[] = {
	{"batch-beyond-known", batch_is_beyond_what_is_known},
	{"model-beyond-data-parallelism", model_is_beyond_data_parallelism},
	{"communication-rules", communication_rules},
	{"experts-gathered", experts_are_gathered},
	{"attention-sees-all", attention_sees_all},
	{"tcp-at-full-rate", tcp_is_taken_at_its_word},
	{"fp8-eager", casts_are_eager},
	{"machine-not-measured", machine_is_not_measured},
	{"assumption-decides", assumption_decides},
};

void warnings_find(const struct question *question, struct arena *arena, struct answer *answer)
{
	if (answer->chosen == NULL)
		return;
	const struct subject subject = {.question = question,
		.answer = answer,
		.plan = &answer->chosen->plan,
		.prediction = &answer->chosen->prediction,
		.topology = question->topology,
		.architecture = &question->model->architecture,
		.parameters = (double)question->model->parameter_count};
	answer->warnings = ARENA_ARRAY(arena, struct warning, COUNT_OF(rows));
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct text sentence = {0};
		if (rows[i].is_due(&subject, &sentence))
			answer->warnings[answer->n_warnings++] = (struct warning){
				rows[i].id, arena_strdup(arena, text_string(&sentence))};
		text_finish(&sentence);
	}
}
