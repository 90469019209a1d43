/* Measures real steps of small models against their predictions, by kind of work. A step takes
 * longer than its kernels alone, because operands may not be in caches and because kernels that
 * were not measured run between the others. */
#include "cli/commands/calibrate_steps.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "executor/executor.h"
#include "schedule/resolve/resolve.h"

/* The models that are trained. None equals a preset, so the prediction of a preset is never one
 * that was measured here. Those for processors fit in no cache and take milliseconds. Those for
 * GPUs are as wide as real models, with few layers, and run for seconds, so that the GPU reaches
 * its power limit. */
static const struct reference {
	const char *model;
	int64_t micro_batch;
	int64_t lengths[3]; /* tokens; 0: no further lengths */
	int64_t steps;
} references[2][2] = {
	[DEVICE_CPU] = {[STEP_MLP_PLAIN] = {"shardplan: model/1\n"
					    "name: calibration-plain\n"
					    "family: gpt2\n"
					    "layers: 3\nhidden: 448\nheads: 7\nffn: 1792\n"
					    "vocab: 4096\ncontext: 256\n",
				1, {128, 256}, 10},
		[STEP_MLP_GATED] = {"shardplan: model/1\n"
				    "name: calibration-gated\n"
				    "family: llama\n"
				    "layers: 3\nhidden: 448\nheads: 7\nkv_heads: 7\nffn: 1216\n"
				    "vocab: 4096\ncontext: 256\n",
			1, {128, 256}, 10}},
	[DEVICE_GPU] = {[STEP_MLP_PLAIN] = {"shardplan: model/1\n"
					    "name: calibration-plain\n"
					    "family: gpt2\n"
					    "layers: 3\nhidden: 1152\nheads: 18\nffn: 4608\n"
					    "vocab: 8192\ncontext: 1024\n",
				16, {1024}, 300},
		[STEP_MLP_GATED] = {"shardplan: model/1\n"
				    "name: calibration-gated\n"
				    "family: llama\n"
				    "layers: 1\nhidden: 4096\nheads: 32\nkv_heads: 32\nffn: 10240\n"
				    "vocab: 8192\ncontext: 4096\n",
			4, {2048}, 150}},
};

enum {
	DATA_BYTES = 1 << 16,
	MOST_RANKS = 8,  /* that compute at the same time */
	STEPS_QUICK = 5, /* including two for warming up */
	MOST_STEPS = 300,
	MOST_RATIOS = 4096,
};
/* Larger ratios tell more about other load on the machine: the largest on an idle one was 1.4. */
static const double most_factor = 2;

static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16};

/* The spread of runs and of their steps. */
struct scatter {
	int visit, n_ratios;
	/* Seconds of a run's work / predicted seconds, by combination and visit; 0: none. */
	double levels[CALIBRATION_STEPS][CALIBRATION_VISITS];
	double ratios[MOST_RATIOS]; /* time of a step / median of its run */
	double yardsticks[CALIBRATION_VISITS];
};

/* The times of one run. */
struct step_times {
	int n;
	double seconds[MOST_STEPS];
};

/* The state of one measurement. */
struct stepping {
	struct arena *arena; /* for this measurement only */
	struct scatter *scatter;
	const struct topology *machine;
	const struct calibration_step *step; /* the combination that is measured */
	const struct model *model;
	const char *data;
	int64_t training_steps;
	double predicted[STEP_WORK_COUNT], measured[STEP_WORK_COUNT]; /* s */
};

/* Makes the training data, random bytes, in memory under a name that rank processes can open. */
static int make_data(struct arena *arena, const char **path)
{
	unsigned char *bytes = ARENA_ARRAY(arena, unsigned char, DATA_BYTES);
	uint32_t state = 1;
	int fd = memfd_create("shardplan-calibration", MFD_CLOEXEC);

	for (int i = 0; i < DATA_BYTES; i++) {
		state = state * 1664525 + 1013904223;
		bytes[i] = (unsigned char)(state >> 24);
	}
	if (fd >= 0 && write(fd, bytes, DATA_BYTES) != DATA_BYTES) {
		close(fd);
		return -1;
	}
	*path = arena_printf(arena, "/proc/%ld/fd/%d", (long)getpid(), fd);
	return fd;
}

static bool on_gpu(const struct stepping *s)
{
	return s->machine->device.kind == DEVICE_GPU;
}

static const struct reference *reference_of(const struct stepping *s)
{
	return &references[s->machine->device.kind][s->step->mlp];
}

/* Ranks of one thread run on all cores, as they do in later training. */
static int64_t ranks_of(const struct stepping *s)
{
	if (s->step->threads == STEP_THREADS_ALL || on_gpu(s))
		return 1;
	return min_i64(s->machine->host.cores, MOST_RANKS);
}

/* The part of the machine that these ranks use. */
static struct topology part_of_machine(const struct stepping *s)
{
	struct topology part = *s->machine;

	part.nodes = 1;
	part.devices_per_node = ranks_of(s);
	if (on_gpu(s))
		return part;
	part.device.memory_bytes = max_i64(part.host.memory_bytes / part.devices_per_node, 1);
	if (s->step->threads == STEP_THREADS_ONE)
		part.host.cores = part.devices_per_node;
	return part;
}

/* Resolves a plan of one unit, so that nothing is communicated during compute. */
static bool resolve(const struct stepping *s, const struct topology *topology, int64_t length,
	struct plan *plan, struct error *error)
{
	const struct question question = {
		.model = s->model,
		.topology = topology,
		.asked = {.runtime = RUNTIME_SHARDPLAN,
			.strategy = STRATEGY_NO_SHARD,
			.wrap = wrap_of_kind(WRAP_MODEL),
			.activation_checkpointing = rows_of_checkpointing(CHECKPOINTING_FULL),
			.param_dtype = s->step->dtype,
			.seq_len = length,
			.micro_batch = reference_of(s)->micro_batch,
			.grad_accum = 1},
		.given = KNOB_BIT(KNOB_RUNTIME) | KNOB_BIT(KNOB_STRATEGY) | KNOB_BIT(KNOB_WRAP) |
			 KNOB_BIT(KNOB_ACTIVATION_CHECKPOINTING) | KNOB_BIT(KNOB_PARAM_DTYPE) |
			 KNOB_BIT(KNOB_SEQ_LEN) | KNOB_BIT(KNOB_MICRO_BATCH) |
			 KNOB_BIT(KNOB_GRAD_ACCUM),
	};

	return plan_resolve(&question, s->arena, plan, error);
}

/* The kind of work that has the operation's name. */
static int work_of(enum op_kind kind)
{
	for (int work = 0; work < STEP_WORK_COUNT; work++)
		if (strcmp(step_work_names[work], op_kind_name(kind)) == 0)
			return work;
	return -1;
}

static void compare(struct stepping *s, const struct evaluation *evaluation,
	const struct measurement *measurement)
{
	const struct program *program = &evaluation->schedule->programs[0];
	const struct span *predicted = evaluation->simulation.timeline.spans;
	const struct span *measured = measurement->timeline.spans;

	for (int i = 0; i < program->n_ops && i < measurement->timeline.n_ops; i++) {
		int work = work_of(program->ops[i].kind);

		if (work < 0)
			continue;
		s->predicted[work] += predicted[i].end - predicted[i].start;
		s->measured[work] += measured[i].end - measured[i].start;
	}
}

static void take_step_time(const struct progress *progress, void *data)
{
	struct step_times *times = data;

	if (times->n < MOST_STEPS)
		times->seconds[times->n++] = progress->step_time;
}

static void take_ratios(
	struct scatter *scatter, const struct step_times *times, const struct measurement *measured)
{
	int first = (int)measured->warm_up_steps;

	for (int i = first; i < times->n && scatter->n_ratios < MOST_RATIOS; i++)
		scatter->ratios[scatter->n_ratios++] = times->seconds[i] / measured->step_time_p50;
}

static bool train_and_compare(struct stepping *s, int64_t length, struct error *error)
{
	struct topology topology = part_of_machine(s);
	struct model model = *s->model;
	const struct question question = {.model = s->model, .topology = &topology};
	struct plan_file file = {.question = {"", "", ""}, .model = &model, .topology = &topology};
	struct evaluation evaluation;
	struct measurement measurement;
	struct step_times times = {0};

	if (!resolve(s, &topology, length, &file.plan, error) ||
		!plan_evaluate(
			&question, &file.plan, EVALUATION_WHOLE, s->arena, &evaluation, error))
		return false;
	file.prediction = evaluation.simulation.prediction;
	file.schedule_digest = evaluation.digest;
	struct executor_job job = {
		.plan = &file,
		.training = training_defaults(),
		.data = s->data,
		.device = on_gpu(s) ? "cuda" : NULL,
		.threads = s->step->threads == STEP_THREADS_ONE ? 1 : 0,
		.expected = &evaluation.simulation.timeline,
		.report = take_step_time,
		.report_data = &times,
	};
	job.training.steps = s->training_steps;
	if (!executor_train(&job, s->arena, &measurement, error))
		return false;
	compare(s, &evaluation, &measurement);
	take_ratios(s->scatter, &times, &measurement);
	return true;
}

/* Is the work taken from these steps? On a GPU, work limited by memory is known from its
 * kernels. */
static bool is_taken(const struct stepping *s, int work)
{
	return !on_gpu(s) || work == STEP_FORWARD || work == STEP_RECOMPUTE ||
	       work == STEP_BACKWARD;
}

static void take_factors(const struct stepping *s, struct calibration_step *step)
{
	for (int work = 0; work < STEP_WORK_COUNT; work++) {
		double ratio = s->predicted[work] > 0 ? s->measured[work] / s->predicted[work] : 0;

		if (is_taken(s, work) && ratio > 0 && ratio < most_factor &&
			ratio > 1 / most_factor)
			step->factors[work] = ratio;
	}
}

/* Measured / predicted time of all work together. */
static double level_of(const struct stepping *s)
{
	double predicted = 0, measured = 0;

	for (int work = 0; work < STEP_WORK_COUNT; work++) {
		predicted += s->predicted[work];
		measured += s->measured[work];
	}
	return predicted > 0 ? measured / predicted : 0;
}

static bool measure_step(
	struct stepping *s, bool quick, struct calibration_step *step, struct error *error)
{
	const struct reference *reference = reference_of(s);
	const char *text = reference->model;
	struct model *model;

	if (!model_parse(s->arena, "reference", text, strlen(text), &model, error))
		return false;
	s->model = model;
	s->training_steps = quick ? STEPS_QUICK : reference->steps;
	for (int i = 0; reference->lengths[i] > 0 && (i == 0 || !quick); i++)
		if (!train_and_compare(s, reference->lengths[i], error))
			return false;
	take_factors(s, step);
	return true;
}

static bool has_factors(const struct calibration_step *step)
{
	for (int work = 0; work < STEP_WORK_COUNT; work++)
		if (step->factors[work] > 0)
			return true;
	return false;
}

static void say(const struct calibration_step *step, void (*report)(const char *line, void *data),
	void *report_data)
{
	char line[256];

	if (report == NULL)
		return;
	snprintf(line, sizeof(line),
		"steps, %s mlp, %s, %s thread%s: forward %.3f, backward %.3f of the prediction",
		step_mlp_names[step->mlp], dtype_name(step->dtype),
		step_threads_names[step->threads], step->threads == STEP_THREADS_ALL ? "s" : "",
		step->factors[STEP_FORWARD], step->factors[STEP_BACKWARD]);
	report(line, report_data);
}

/* Measures combination `number`. False: further ones are pointless. */
static bool measure_one(const char *data, bool quick, const struct topology *machine, int number,
	struct scatter *scatter, struct calibration_step *step)
{
	struct arena arena = {0};
	struct error error = {0};
	struct stepping s = {.arena = &arena,
		.scatter = scatter,
		.machine = machine,
		.step = step,
		.data = data};
	bool ok = measure_step(&s, quick, step, &error);

	if (ok)
		scatter->levels[number][scatter->visit] = level_of(&s);
	else
		output_note("no steps were measured beyond here, predictions do without them: %s",
			error.message);
	arena_finish(&arena);
	return ok;
}

/* Combination `number`, without ratios: the next measurement is predicted without those already
 * made. */
static struct calibration_step combination(int number)
{
	return (struct calibration_step){.mlp = (enum step_mlp)(number >> 2 & 1),
		.dtype = dtypes[number >> 1 & 1],
		.threads = (enum step_threads)(number & 1)};
}

/* Is the combination of use? On one core all cores are one; a GPU is used as a whole, and trains in
 * bf16. */
static bool is_told(const struct topology *topology, const struct calibration_step *step)
{
	if (topology->device.kind == DEVICE_GPU)
		return step->dtype == DTYPE_BF16 && step->threads == STEP_THREADS_ALL;
	return step->threads == STEP_THREADS_ONE || topology->host.cores > 1;
}

/* Measures all combinations once in each visit, because other load on the machine comes and goes.
 * Returns the number of those that were measured in every visit; later ones could not be measured.
 */
static int measure_visits(const char *data, bool quick, const struct topology *machine, int visits,
	struct scatter *scatter, struct calibration_step steps[][CALIBRATION_VISITS])
{
	int n = CALIBRATION_STEPS;

	for (scatter->visit = 0; scatter->visit < visits; scatter->visit++) {
		int visit = scatter->visit;

		if (machine->device.kind == DEVICE_CPU)
			scatter->yardsticks[visit] = executor_yardstick();
		for (int i = 0; i < n; i++) {
			steps[i][visit] = combination(i);
			if (is_told(machine, &steps[i][visit]) &&
				!measure_one(data, quick, machine, i, scatter, &steps[i][visit]))
				n = i;
		}
	}
	return n;
}

static void keep_scatter(
	struct scatter *scatter, int combinations, int visits, struct calibration *calibration)
{
	double levels[CALIBRATION_STEPS * CALIBRATION_VISITS], sorted[CALIBRATION_VISITS];
	int n = 0;

	for (int i = 0; i < combinations; i++) {
		memcpy(sorted, scatter->levels[i], sizeof(sorted));
		sort_numbers(sorted, visits);
		for (int v = 0; v < visits && sorted[0] > 0; v++)
			levels[n++] = sorted[v] / quantile(sorted, visits, 0.5);
	}
	if (visits > 1 && n > 0)
		calibration_take_levels(calibration, levels, n, visits);
	calibration_take_steps(calibration, scatter->ratios, scatter->n_ratios);
	sort_numbers(scatter->yardsticks, visits);
	calibration->yardstick = quantile(scatter->yardsticks, visits, 0.5);
}

void calibrate_steps(struct arena *arena, bool quick, void (*report)(const char *line, void *data),
	void *report_data, struct topology *topology)
{
	struct calibration_step steps[CALIBRATION_STEPS][CALIBRATION_VISITS];
	struct scatter *scatter = ARENA_NEW(arena, struct scatter);
	/* A GPU has no other load, and takes minutes. */
	int visits = quick || topology->device.kind == DEVICE_GPU ? 1 : CALIBRATION_VISITS;
	const char *path = NULL;
	int data = make_data(arena, &path);

	if (data < 0) {
		output_note("no steps were measured: there is no memory for their data");
		return;
	}
	int n = measure_visits(path, quick, topology, visits, scatter, steps);
	close(data);
	for (int i = 0; i < n; i++) {
		struct calibration_step step = calibration_step_middle(steps[i], visits);

		if (has_factors(&step) && calibration_add_step(&topology->calibration, &step))
			say(&step, report, report_data);
	}
	keep_scatter(scatter, n, visits, &topology->calibration);
}
