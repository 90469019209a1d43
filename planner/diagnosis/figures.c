/* Without a trace: what a step time or an MFU alone can tell of where the step goes. */
#include <math.h>
#include <stdlib.h>

#include "planner/diagnosis/rules.h"
#include "schedule/resolve/resolve.h"

/* --- causes that a plan can have -------------------------------------------------------------- */

/* False: the plan is like that already. */
static bool to_fp32_parameters(struct plan *plan)
{
	bool changes = plan->param_dtype != DTYPE_FP32;
	plan->param_dtype = DTYPE_FP32;
	return changes;
}

static bool to_fp32_reduction(struct plan *plan)
{
	bool changes = plan->reduce_dtype != DTYPE_FP32;
	plan->reduce_dtype = DTYPE_FP32;
	return changes;
}

static bool to_eager_attention(struct plan *plan)
{
	bool changes = attention_is_flash(plan->attention);
	plan->attention = ATTENTION_EAGER;
	return changes;
}

static bool to_offload(struct plan *plan)
{
	bool changes = !plan_offloads_any(plan);
	plan->cpu_offload = rows_of_offload(OFFLOAD_PARAMETERS);
	return changes;
}

static bool to_full_checkpointing(struct plan *plan)
{
	bool changes = !plan_checkpoints(plan, CHECKPOINTING_FULL);
	plan->activation_checkpointing = rows_of_checkpointing(CHECKPOINTING_FULL);
	return changes;
}

static bool to_no_prefetch(struct plan *plan)
{
	bool changes = plan->prefetch != PREFETCH_NONE;
	plan->prefetch = PREFETCH_NONE;
	if (plan->runtime == RUNTIME_PYTORCH_FSDP2)
		plan->runtime = RUNTIME_PYTORCH_FSDP1;
	return changes;
}

static bool to_one_unit(struct plan *plan)
{
	bool changes = plan->wrap.kind != WRAP_MODEL;
	plan->wrap = wrap_of_kind(WRAP_MODEL);
	return changes;
}

static bool to_reductions_each(struct plan *plan)
{
	bool changes = plan->grad_accum > 1 && !plan->sync_each_micro_batch;
	plan->sync_each_micro_batch = true;
	return changes;
}

static const struct fault {
	const char *id, *title, *look;
	bool (*make)(struct plan *plan);
} faults[] = {
	{"fp32-parameters", "parameters computed and gathered in fp32",
		"param_dtype of the mixed precision policy; autocast", to_fp32_parameters},
	{"fp32-reduction", "gradients reduced in fp32",
		"reduce_dtype of the mixed precision policy", to_fp32_reduction},
	{"eager-attention", "attention not fused", "attn_implementation; which backend SDPA takes",
		to_eager_attention},
	{"offload", "parameters offloaded to the host", "CPUOffloadPolicy, offload_params",
		to_offload},
	{"more-compute", "activations computed again", "checkpointing in the model or the trainer",
		to_full_checkpointing},
	{"no-prefetch", "all-gathers not prefetched", "backward_prefetch, explicit prefetching",
		to_no_prefetch},
	{"no-wrap", "no wrap policy took effect", "print(model): FSDP round every block?",
		to_one_unit},
	{"reduced-each-micro-batch", "gradients reduced after every micro-batch",
		"no_sync(), set_requires_gradient_sync(False)", to_reductions_each},
};

static void add_candidate(struct figures_diagnosis *d, const struct figure_candidate *candidate)
{
	if (candidate->effect > 0.005 * d->prediction->step_time)
		d->candidates[d->n_candidates++] = *candidate;
}

static void try_fault(const struct diagnosed_figures *what, const struct fault *fault,
	struct figures_diagnosis *d)
{
	const struct plan_file *file = what->file;
	struct arena arena = {0};
	struct plan plan = file->plan;
	struct schedule *schedule;
	struct simulation simulation;
	struct error error = {0};

	if (fault->make(&plan) && plan_check(&plan, file->model, file->topology, &error) &&
		evidence_simulate(file, &plan, false, &arena, &schedule, &simulation, &error)) {
		double step = simulation.prediction.step_time;
		add_candidate(d, &(struct figure_candidate){fault->id, fault->title, fault->look,
					 step, step - d->prediction->step_time,
					 simulation.prediction.fits != FITS_NO});
	}
	arena_finish(&arena);
}

/* Kernels and collectives one after the other. */
static void try_no_overlap(struct figures_diagnosis *d)
{
	const struct time_split *time = &d->prediction->time;
	double step = time->compute + time->all_gather + time->reduce_scatter + time->all_reduce +
		      time->all_to_all + time->copy + time->optimizer;

	add_candidate(
		d, &(struct figure_candidate){"no-overlap",
			   "communication does not overlap with compute",
			   "CUDA_DEVICE_MAX_CONNECTIONS=1, CUDA_LAUNCH_BLOCKING, synchronize()",
			   step, step - d->prediction->step_time, true});
}

/* A candidate that does not fit in memory cannot have been the run. */
static int by_effect(const void *left, const void *right)
{
	const struct figure_candidate *a = left, *b = right;
	if (a->fits != b->fits)
		return (int)b->fits - (int)a->fits;
	return (a->effect < b->effect) - (a->effect > b->effect);
}

/* --- MFU -------------------------------------------------------------------------------------- */

/* A given MFU has two or three digits, so a step time from it has no more. */
#define SAME_MFU 0.03

static void count_flops(struct figures_diagnosis *d)
{
	const struct prediction *p = d->prediction;
	const struct mfu_convention all[MFU_CONVENTIONS] = {
		{"all of attention: 6N + 12 L d s", p->mfu, 0},
		{"its causal half: 6N + 6 L d s", p->mfu_causal, 0},
		{"without attention: 6N", p->mfu_6n, 0},
		{"with what is computed again (HFU)", p->hfu, 0}};

	for (int i = 0; i < MFU_CONVENTIONS; i++) {
		struct mfu_convention *c = &d->conventions[d->n_conventions];
		if (all[i].predicted <= 0)
			continue;
		*c = all[i];
		c->measured = c->predicted * p->step_time / d->step_time;
		d->n_conventions++;
		if (d->mfu > 0 && fabs(c->measured / d->mfu - 1) < SAME_MFU &&
			(d->convention == NULL || fabs(c->measured - d->mfu) <
							  fabs(d->convention->measured - d->mfu)))
			d->convention = c;
	}
}

/* --- what would have to be true --------------------------------------------------------------- */

static void add_condition(struct figures_diagnosis *d, const char *id, const char *text)
{
	d->conditions[d->n_conditions++] = (struct figure_condition){id, text};
}

static double step_at(const struct plan_file *file, double share)
{
	struct arena arena = {0};
	struct topology slower = *file->topology;
	struct plan_file other = *file;
	struct schedule *schedule;
	struct simulation simulation;
	struct error error = {0};
	double seconds = NAN;

	slower.network.nic_bandwidth *= share;
	if (slower.nodes <= 1)
		slower.fabric.bandwidth *= share;
	other.topology = &slower;
	if (evidence_simulate(&other, &other.plan, false, &arena, &schedule, &simulation, &error))
		seconds = simulation.prediction.step_time;
	arena_finish(&arena);
	return seconds;
}

/* The share of its rate at which the slowest link would make the step that long. */
static void find_link(
	const struct diagnosed_figures *what, struct arena *arena, struct figures_diagnosis *d)
{
	enum { HALVINGS = 8 };
	double low = log(0.01), high = 0;

	if (!(step_at(what->file, 0.01) > d->step_time))
		return;
	for (int i = 0; i < HALVINGS; i++) {
		double middle = (low + high) / 2;
		*(step_at(what->file, exp(middle)) > d->step_time ? &low : &high) = middle;
	}
	add_condition(d, "slow-link",
		arena_printf(arena, "%s deliver %.0f %% of what the topology says",
			what->file->topology->nodes > 1 ? "the NICs" : "links between devices",
			100 * exp(high)));
}

static void find_conditions(
	const struct diagnosed_figures *what, struct arena *arena, struct figures_diagnosis *d)
{
	const struct plan *plan = &what->file->plan;
	double gap = d->step_time - d->prediction->step_time;
	double tokens = (double)(plan->micro_batch * plan->grad_accum * plan->seq_len);
	char number[32];

	if (d->prediction->time.compute > 0)
		add_condition(d, "more-compute",
			arena_printf(arena,
				"kernels take %.2f times as long: "
				"clocks, another process on the device, other shapes",
				1 + gap / d->prediction->time.compute));
	find_link(what, arena, d);
	add_condition(d, "data-bound",
		arena_printf(arena, "the loader delivers %.0f tokens/s to a rank, no more",
			tokens / d->step_time));
	add_condition(d, "host-bound",
		arena_printf(arena,
			"the device waits %s a step: .item(), logging, evaluation, checkpoints",
			format_seconds(number, gap)));
}

bool diagnose_figures(const struct diagnosed_figures *what, struct arena *arena,
	struct figures_diagnosis *d, struct error *error)
{
	struct schedule *schedule;
	struct simulation *simulation = ARENA_ARRAY(arena, struct simulation, 1);

	*d = (struct figures_diagnosis){
		.mfu = what->mfu, .n_steps = what->n_steps, .spread = what->spread};
	if (!evidence_simulate(
		    what->file, &what->file->plan, false, arena, &schedule, simulation, error))
		return false;
	d->prediction = &simulation->prediction;
	if (what->step_time <= 0 && d->prediction->mfu <= 0)
		return error_set(error, EXIT_CODE_INPUT,
			"--mfu: the peak of this device is not known, give --step-time");
	d->step_time = what->step_time > 0
			       ? what->step_time
			       : d->prediction->step_time * d->prediction->mfu / what->mfu;
	count_flops(d);
	for (int i = 0; i < COUNT_OF(faults); i++)
		try_fault(what, &faults[i], d);
	try_no_overlap(d);
	qsort(d->candidates, (size_t)d->n_candidates, sizeof(d->candidates[0]), by_effect);
	if (d->step_time > d->prediction->step_time)
		find_conditions(what, arena, d);
	return true;
}
