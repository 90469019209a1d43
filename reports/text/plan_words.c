/* A plan and its figures in words, for the first screen. */
#include <stdio.h>
#include <string.h>

#include "reports/text/screen.h"
#include "schedule/pipeline/pipeline.h"

/* What each strategy shards over ranks. */
static const char *const sharded[STRATEGY_COUNT] = {
	[STRATEGY_SHARD_GRAD_OP] = "gradients, optimizer state sharded",
	[STRATEGY_FULL_SHARD] = "parameters, gradients, optimizer state sharded",
	[STRATEGY_HYBRID_SHARD] = "FULL_SHARD",
	[STRATEGY_HYBRID_SHARD_ZERO2] = "SHARD_GRAD_OP",
	[STRATEGY_ZERO_1] = "optimizer state sharded",
	[STRATEGY_ZERO_2] = "gradients, optimizer state sharded",
	[STRATEGY_ZERO_3] = "parameters, gradients, optimizer state sharded",
};

/* Adds "layers split over 4 GPUs, sequences over 2". False: a rank has all of the model and of its
 * sequences, and nothing is added. */
static bool add_parts(const struct plan *plan, const char *devices, struct text *text)
{
	const struct mesh *mesh = &plan->mesh;
	const struct {
		const char *what;
		int64_t ranks;
	} parts[] = {{"blocks", mesh->pipeline}, {"layers", mesh->tensor},
		{"sequences", mesh->context}, {"experts", mesh->expert}};
	const struct pipeline pipeline = plan_pipeline(plan);
	bool any = false;

	for (int i = 0; i < COUNT_OF(parts); i++) {
		if (parts[i].ranks == 1)
			continue;
		text_printf(text, any ? ", %s over %lld" : "%s split over %lld", parts[i].what,
			(long long)parts[i].ranks);
		if (!any)
			text_printf(text, " %s", devices);
		if (i == 3 && plan->expert_dispatch == DISPATCH_DEEPEP)
			text_add(text, " through DeepEP");
		if (i == 3 && plan->expert_overlap)
			text_add(text, " beside another micro-batch");
		if (i == 0 && pipeline.chunks > 1)
			text_printf(text, " in %d stages", pipeline.ranks * pipeline.chunks);
		any = true;
	}
	return any;
}

/* Strategies that shard everything need no more words if a rank already has only a part of the
 * model. */
static const char *sharded_of_part(const struct plan *plan)
{
	const struct mesh *mesh = &plan->mesh;

	if (!strategy_reshards(plan->strategy) && !strategy_is_hybrid(plan->strategy))
		return sharded[plan->strategy];
	return mesh->tensor * mesh->pipeline * mesh->expert > 1 ? "each part sharded"
								: "the model sharded";
}

/* An expert rank has a part of the experts, and shares it with fewer ranks than the rest. */
static void add_sharded_experts(int64_t ranks, struct text *text)
{
	if (ranks > 1)
		text_printf(text, " (experts over %lld)", (long long)ranks);
	else
		text_add(text, " (experts no further)");
}

static void add_sharded_part(const struct plan *plan, struct text *text)
{
	long long shard = plan_shard_ranks(plan), copies = (long long)plan->mesh.replicate;

	if (shard > 1 && sharded[plan->strategy] != NULL)
		text_printf(text, ", %s over %lld", sharded_of_part(plan), shard);
	if (shard > 1 && sharded[plan->strategy] != NULL && plan->mesh.expert > 1)
		add_sharded_experts(plan_expert_shard_ranks(plan), text);
	if (copies > 1)
		text_printf(text, ", %lld copies", copies);
}

static void add_sharded(const struct plan *plan, const char *devices, struct text *text)
{
	long long shard = plan_shard_ranks(plan), copies = (long long)plan->mesh.replicate;

	if (add_parts(plan, devices, text))
		add_sharded_part(plan, text);
	else if (plan_ranks(plan) == 1)
		text_printf(text, "the whole model on one %.*s", (int)strlen(devices) - 1, devices);
	else if (sharded[plan->strategy] == NULL || shard == 1)
		text_printf(text, "the whole model on each of %lld %s", shard * copies, devices);
	else if (copies > 1)
		text_printf(text, "%s in groups of %lld %s, %lld copies", sharded[plan->strategy],
			shard, devices, copies);
	else
		text_printf(text, "%s over %lld %s", sharded[plan->strategy], shard, devices);
}

static void add_strategy(const struct plan *plan, const char *devices, struct text *text)
{
	plan_add_name(plan, text);
	text_printf(text, " (%s", runtime_names[plan->runtime]);
	if (libraries_named(&plan->libraries))
		text_printf(text, ", %s", plan->libraries.text);
	plan_add_order(plan, text);
	text_add(text, "): ");
	add_sharded(plan, devices, text);
}

static void add_units(const struct plan *plan, struct text *text)
{
	if (plan_layout(plan) == LAYOUT_WHOLE)
		return;
	text_printf(text, "wrap %s, ", plan->wrap.text);
	if (plan_reshard_group(plan) > 0 || plan->reshard_after_forward.n > 0) {
		plan_say_reshard(plan, text);
		text_add(text, ", ");
	}
	text_printf(text, "prefetch %s%s, ", knob_name(KNOB_PREFETCH, (int)plan->prefetch),
		plan->forward_prefetch ? " + forward" : "");
}

static void add_kept(const struct plan *plan, struct text *text)
{
	const struct rows *checkpointing = &plan->activation_checkpointing;

	if (strcmp(checkpointing->text, "none") == 0)
		text_add(text, "no checkpointing");
	else if (checkpointing->n == 0)
		text_printf(text, "%s checkpointing", checkpointing->text);
	else {
		text_add(text, "checkpointing ");
		rows_say(checkpointing, "block", text);
	}
	if (plan->recompute_modules.of != 0)
		text_printf(text, " (%s)", plan->recompute_modules.text);
	if (plan->activation_offload != ACTIVATIONS_STAY)
		text_printf(text, " (%s on the host)",
			knob_name(KNOB_ACTIVATION_OFFLOAD, (int)plan->activation_offload));
	if (plan_offloads_any(plan)) {
		text_add(text, ", CPU offload: ");
		rows_say(&plan->cpu_offload, "unit", text);
	}
	if (!trainable_is_all(&plan->trainable))
		text_printf(text, ", trains %s", plan->trainable.text);
	if (plan->gradient_sums == SUMS_EXACT)
		text_add(text, ", exact gradient sums");
}

void add_plan_briefly(const struct plan *plan, struct text *text)
{
	plan_add_name(plan, text);
	text_add(text, ", ");
	add_kept(plan, text);
}

static void add_batch(const struct plan *plan, struct text *text)
{
	char batch[48];

	text_printf(text, ", micro-batch %s",
		format_micro_batch(batch, plan->micro_batch, plan->grad_accum));
	/* Stages reduce gradients after the last micro-batch unless told otherwise. */
	if (plan->grad_accum == 1 || (plan->mesh.pipeline > 1 && !plan->sync_each_micro_batch))
		return;
	text_printf(text, " (%s)", plan_reduction(plan));
}

const char *device_noun(const struct topology *topology)
{
	return topology->device.kind == DEVICE_GPU ? "GPU" : "rank";
}

void add_plan_words(const struct question *question, const struct plan *plan, struct text *strategy,
	struct text *settings)
{
	char devices[8];

	snprintf(devices, sizeof(devices), "%ss", device_noun(question->topology));
	add_strategy(plan, devices, strategy);
	add_units(plan, settings);
	add_kept(plan, settings);
	add_batch(plan, settings);
}

/* Describes the work of a step, and what the prediction assumes of the user's script. */
void add_work(const struct plan *plan, struct text *text)
{
	char tokens[32];

	text_printf(text, "%lld %s of %lld tokens a step (%s)", (long long)plan->global_batch,
		plan->global_batch == 1 ? "sequence" : "sequences", (long long)plan->seq_len,
		format_count(tokens, (double)plan->global_batch * (double)plan->seq_len));
	if (plan->document_len > 0)
		text_printf(text, ", documents of %lld", (long long)plan->document_len);
	text_printf(text, ", %s%s%s, %s attention, %s loss, %s%s%s",
		knob_name(KNOB_PARAM_DTYPE, (int)plan->param_dtype),
		plan->fp8 == FP8_OFF     ? ""
		: plan->fp8 == FP8_NVFP4 ? ", "
					 : ", fp8 ",
		plan->fp8 != FP8_OFF ? knob_name(KNOB_FP8, (int)plan->fp8) : "",
		knob_name(KNOB_ATTENTION, (int)plan->attention),
		knob_name(KNOB_LOSS, (int)plan->loss),
		knob_name(KNOB_OPTIMIZER, (int)plan->optimizer),
		plan->compile ? ", torch.compile" : "", plan->liger ? ", Liger" : "");
}

/* --- figures ---------------------------------------------------------------------------------- */

void add_time_figure(const struct prediction *p, struct text *text)
{
	char time[32], low[32], high[32];

	text_printf(text, "%s a step", format_seconds(time, p->step_time));
	if (p->step_time_high > p->step_time_low)
		text_printf(text, " (80 %% sure: %s to %s", format_seconds(low, p->step_time_low),
			format_beside(high, p->step_time_high, p->step_time_low));
	if (p->step_time_high > p->step_time_low && p->step_time_best > 0)
		text_printf(text, "; at best %s", format_seconds(low, p->step_time_best));
	if (p->step_time_high > p->step_time_low)
		text_add_char(text, ')');
}

void add_speed_figure(const char *noun, const struct prediction *p, struct text *text)
{
	char tokens[32], low[32], high[32], mfu[32];
	double work = p->tokens_per_s_per_gpu * p->step_time;

	text_printf(text, "%s tokens/s/%s", format_tokens(tokens, p->tokens_per_s_per_gpu), noun);
	if (p->step_time_high > p->step_time_low)
		text_printf(text, " (%s to %s)", format_tokens(low, work / p->step_time_high),
			format_tokens(high, work / p->step_time_low));
	if (p->mfu > 0)
		text_printf(text, ", MFU %s", format_percent(mfu, p->mfu));
}

void add_memory_figure(
	const struct question *question, const struct answer *answer, struct text *text)
{
	const struct prediction *p = &answer->chosen->prediction;
	char peak[32], limit[32], bytes[32];
	double cache = (double)(p->peak_memory_bytes - prediction_needed_bytes(p));
	double room = (double)answer->headroom_bytes;

	text_printf(text, "%s peak of %s per %s", format_bytes(peak, (double)p->peak_memory_bytes),
		format_bytes(limit, (double)p->memory_limit_bytes),
		device_noun(question->topology));
	if (p->fits == FITS_TIGHT) {
		text_printf(text, ": %s in use, %s wanted, the allocator must free the rest",
			format_bytes(bytes, (double)prediction_needed_bytes(p)),
			format_bytes(peak, (double)prediction_wanted_bytes(p)));
		return;
	}
	/* What the peak may exceed the device by comes out of the cache. */
	bool beyond = (double)p->peak_memory_bytes + room > (double)p->memory_limit_bytes;
	bool much = cache > 0.02 * (double)p->memory_limit_bytes;
	if (beyond && much)
		text_printf(text, ", %s can be freed", format_bytes(bytes, cache));
	if (room > 0 && question->headroom.given)
		text_printf(text, " (%s asked to stay free)", format_bytes(bytes, room));
	else if (room > 0 && beyond)
		text_printf(text, " (80 %% sure: needs up to %s)",
			format_bytes(bytes, (double)prediction_needed_bytes(p) + room));
	else if (room > 0)
		text_printf(text, " (80 %% sure: up to %s)",
			format_bytes(bytes, (double)p->peak_memory_bytes + room));
	if (!beyond && much)
		text_printf(text, ", %s of it cache", format_bytes(bytes, cache));
}

void add_missing_memory(
	const struct question *question, const struct prediction *p, struct text *text)
{
	char peak[32], limit[32], bytes[32];
	int most = 0;

	for (int c = 1; c < CATEGORY_COUNT; c++)
		if (p->memory_at_peak[c] > p->memory_at_peak[most])
			most = c;
	text_printf(text, "needs %s of %s per %s",
		format_bytes(peak, (double)prediction_missing_bytes(p)),
		format_bytes(limit, (double)p->memory_limit_bytes),
		device_noun(question->topology));
	if (or_empty(p->peak_at)[0] != '\0')
		text_printf(text, ", most at %s", p->peak_at);
	text_printf(text, "; %s of it ", format_bytes(bytes, (double)p->memory_at_peak[most]));
	category_label((enum category)most, text);
}
