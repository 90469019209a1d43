/* `calibrate`: measures this machine and saves the result as a topology. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/calibrate_steps.h"
#include "cli/commands/commands.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "executor/executor.h"

static void report_line(const char *line, void *data)
{
	(void)data;
	fprintf(stderr, "%s\n", line);
}

static void add_rate(struct text *text, const char *name, double value, const char *unit)
{
	if (value <= 0)
		return;
	text_add(text, name);
	text_column(text, 34);
	text_printf(text, "%10.4g %s\n", value, unit);
}

static void add_collective(const struct calibration_collective *piece, struct text *text)
{
	char latency[32], bandwidth[32], size[32];

	text_printf(text, "%s, %lld ranks", collective_kind_names[piece->collective],
		(long long)piece->ranks);
	if (piece->nodes > 1)
		text_printf(text, " on %lld nodes", (long long)piece->nodes);
	text_column(text, 34);
	text_printf(text, "%10s + bytes / %s, from %s\n", format_seconds(latency, piece->latency),
		format_bandwidth(bandwidth, piece->bandwidth),
		format_bytes(size, (double)piece->from_bytes));
}

static void add_step(const struct calibration_step *step, struct text *text)
{
	const char *between = "";

	text_printf(text, "step, %s mlp, %s, %s", step_mlp_names[step->mlp],
		dtype_name(step->dtype),
		step->threads == STEP_THREADS_ONE ? "1 thread" : "all cores");
	text_column(text, 34);
	for (int work = 0; work < STEP_WORK_COUNT; work++) {
		if (step->factors[work] <= 0)
			continue;
		text_printf(
			text, "%s%s x %.2f", between, step_work_names[work], step->factors[work]);
		between = ", ";
	}
	text_add_char(text, '\n');
}

static void add_measured(const struct topology *topology, struct text *text)
{
	const struct calibration *c = &topology->calibration;

	text_printf(text, "%s: %s, %lld cores\n\n", topology->name, topology->device.name,
		(long long)topology->host.cores);
	add_rate(text, "matrix products, one core", c->gemm_flops * 1e-9, "GFLOP/s");
	add_rate(text, "the same in bf16", c->bf16_gemm_flops * 1e-9, "GFLOP/s");
	add_rate(text, "attention forward", c->attention_forward_flops * 1e-9, "GFLOP/s");
	add_rate(text, "attention backward", c->attention_backward_flops * 1e-9, "GFLOP/s");
	add_rate(text, "a product on all cores", c->threads_speedup, "x");
	add_rate(text, "activation", c->activation_rate * 1e-6, "M elements/s");
	add_rate(text, "the same in bf16", c->bf16_activation_rate * 1e-6, "M elements/s");
	add_rate(text, "loss", c->loss_rate * 1e-6, "M logits/s");
	add_rate(text, "the same in bf16", c->bf16_loss_rate * 1e-6, "M logits/s");
	add_rate(text, "gradient norm", c->gradient_norm_rate * 1e-6, "M elements/s");
	add_rate(text, "memory, one core", c->memory_bandwidth * 1e-9, "GB/s");
	add_rate(text, "memory, all cores", c->memory_bandwidth_shared * 1e-9, "GB/s");
	add_rate(text, "optimizer, one core", c->optimizer_bandwidth * 1e-9, "GB/s");
	add_rate(text, "optimizer, all cores", c->optimizer_bandwidth_shared * 1e-9, "GB/s");
	add_rate(text, "a kernel costs", c->kernel_overhead * 1e6, "us");
	add_rate(text, "an operation costs the host", c->host_overhead * 1e6, "us");
	for (int i = 0; i < c->n_collectives; i++)
		add_collective(&c->collectives[i], text);
	for (int i = 0; i < c->n_steps; i++)
		add_step(&c->steps[i], text);
}

/* Keeps lines reported while a GPU is measured, for example the table of products: they are part of
 * the answer. */
static void keep_line(const char *line, void *data)
{
	text_add(data, line);
	text_add_char(data, '\n');
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "%s\n", line);
}

/* The GPUs of this machine, as their driver describes them, with the measurements; or those of a
 * cluster, which only the first rank has. */
static bool measure_gpus(const struct invocation *invocation, const struct launcher *launcher,
	struct topology **topology, struct text *lines, struct error *error)
{
	struct calibrate_options options = {
		.choose = !argument_given(&invocation->arguments, "quick"),
		.quick = argument_given(&invocation->arguments, "quick"),
		.launcher = *launcher,
		.report = keep_line,
		.report_data = lines,
	};

	*topology = NULL;
	if (!nccl_wish_parse(argument(&invocation->arguments, "nccl"), &options.nccl, error) ||
		!executor_has_gpus(error) ||
		(launcher->rank == 0 && !input_local_gpus(invocation->arena, topology, error)) ||
		!executor_calibrate_gpus(&options, invocation->arena, *topology, error))
		return false;
	/* In a cluster the other ranks would have to wait meanwhile. */
	if (!options.quick && launcher->ranks <= 1)
		calibrate_steps(invocation->arena, false, keep_line, lines, *topology);
	return true;
}

static bool measure_cluster(const struct calibrate_options *options, struct arena *arena,
	struct topology **topology, struct error *error)
{
	struct calibration calibration;

	*topology = NULL;
	if (!executor_calibrate(options, arena, &calibration, error))
		return false;
	return options->launcher.rank > 0 ||
	       executor_describe_cluster(&options->launcher, &calibration, arena, topology, error);
}

/* Measures. `*topology` is NULL if another process of the run has the result. */
static bool measure(const struct invocation *invocation, const struct launcher *launcher,
	struct topology **topology, struct error *error)
{
	const struct calibrate_options options = {
		.quick = argument_given(&invocation->arguments, "quick"),
		.launcher = *launcher,
		.report = isatty(STDERR_FILENO) ? report_line : NULL,
	};

	if (launcher->ranks > 1)
		return measure_cluster(&options, invocation->arena, topology, error);
	if (!executor_detect_local(0, invocation->arena, topology, error) ||
		!executor_calibrate(&options, invocation->arena, &(*topology)->calibration, error))
		return false;
	calibrate_steps(invocation->arena, options.quick, options.report, NULL, *topology);
	return true;
}

/* The operand must be the machine or cluster of which this process is a part. */
static bool check_operand(const struct arguments *arguments, const struct launcher *launcher,
	bool gpus, struct error *error)
{
	const char *what = arguments->operands[0];
	bool cluster = strcmp(what, "cluster") == 0;

	if (!cluster && strcmp(what, "local") != 0)
		return error_set(error, EXIT_CODE_USAGE,
			"calibrate %.100s: expected local (with --device cuda: its GPUs), "
			"or cluster (of the nodes on which mpirun, srun or torchrun starts it)",
			what);
	if (cluster && launcher->ranks <= 1)
		return error_set(error, EXIT_CODE_USAGE,
			"calibrate cluster: expected to be started by mpirun, "
			"srun or torchrun, one process a rank, got one process (docs/train.md)");
	if (!cluster && launcher->ranks > 1)
		return error_set(error, EXIT_CODE_USAGE,
			"calibrate local: expected one process, got %d of %s; "
			"use calibrate cluster",
			launcher->ranks, launcher->name);
	return (!cluster && !gpus) || argument_given(arguments, "output") ||
	       error_set(error, EXIT_CODE_USAGE,
		       "calibrate %s%s: expected -o FILE, where the topology goes", what,
		       gpus ? " --device cuda" : "");
}

/* Saves the topology as a file of its own, and where `local` finds it unless -o says otherwise. */
static bool keep(const struct invocation *invocation, const struct topology *topology,
	const char **path, struct error *error)
{
	struct text yaml = {0};

	*path = argument(&invocation->arguments, "output");
	if (*path == NULL && (!input_local_cache(invocation->arena, path, error) ||
				     !file_make_folders(invocation->arena, *path, error)))
		return false;
	topology_print(topology, WRITER_YAML, &yaml);
	bool ok = file_write(invocation->arena, *path, &yaml, error);
	text_finish(&yaml);
	return ok;
}

/* `lines`: what was reported of GPUs, which contains their figures. */
static bool print(const struct invocation *invocation, const struct topology *topology,
	const struct text *lines, bool aside, struct error *error)
{
	struct text text = {0};
	struct writer writer;

	if (argument_given(&invocation->arguments, "json")) {
		document_begin(&writer, &text, "shardplan/topology/1");
		topology_write(topology, &writer);
		writer_finish(&writer);
	} else if (topology->device.kind == DEVICE_GPU) {
		text_printf(&text, "%s: %lld x %s\n\n%s", topology->name,
			(long long)topology_devices(topology), topology->device.name,
			text_string(lines));
	} else {
		add_measured(topology, &text);
	}
	bool ok = aside ? output_aside(&text) : output_text(&text, error);
	text_finish(&text);
	return ok;
}

static bool measure_and_keep(const struct invocation *invocation, const struct launcher *launcher,
	bool gpus, struct text *lines, struct error *error)
{
	struct topology *topology;
	const char *path = argument(&invocation->arguments, "output");

	if (path != NULL && launcher->rank == 0 &&
		!file_check_writable(invocation->arena, path, error))
		return false;
	if (gpus ? !measure_gpus(invocation, launcher, &topology, lines, error)
		 : !measure(invocation, launcher, &topology, error))
		return false;
	if (topology == NULL)
		return true;
	if (!keep(invocation, topology, &path, error))
		return false;
	bool aside = strcmp(path, "-") == 0;
	if (!aside)
		output_note("the calibration is in %s", path);
	return print(invocation, topology, lines, aside, error);
}

static bool run(struct invocation *invocation, struct error *error)
{
	static const struct field fields[] = {
		FIELD_DOUBLE(struct launcher, join_timeout, "join_timeout", FIELD_POSITIVE),
		FIELD_END,
	};
	static const char *const devices[] = {"host", "cuda", NULL};
	const struct arguments *arguments = &invocation->arguments;
	struct text lines = {0};
	struct launcher launcher;
	int device = 0;

	if (!argument_choice(arguments, "device", devices, &device, error) ||
		!executor_launcher(&launcher, error) ||
		!arguments_set(arguments, fields, &launcher, invocation->arena, error) ||
		!check_operand(arguments, &launcher, device == 1, error))
		return false;
	bool ok = measure_and_keep(invocation, &launcher, device == 1, &lines, error);
	text_finish(&lines);
	return ok;
}

const struct command command_calibrate = {
	.name = "calibrate",
	.summary = "measure this machine, its GPUs or a cluster for predictions",
	.operands = "local|cluster",
	.least = 1,
	.most = 1,
	.details = "Measures matrix products, attention, memory, the collectives of local ranks, "
		   "and real steps of small models against their predictions, prints them, "
		   "and keeps them where `local` finds them (`shardplan help environment`) "
		   "or in FILE, which is a topology file. "
		   "`cluster`, started by mpirun, srun or torchrun with one process a rank, "
		   "measures the first node and the collectives of all levels, and writes FILE. "
		   "With `--device cuda` the GPUs of this machine are measured: "
		   "matrix products by shape, attention, "
		   "memory, PCIe, launches and NCCL's collectives; FILE is their topology. "
		   "`cluster` with one process a GPU measures the first GPU, "
		   "and NCCL's collectives of all levels.",
	.examples = {"shardplan calibrate local", "shardplan calibrate local --quick -o here.yaml",
		"shardplan calibrate local --device cuda -o gpus.yaml",
		"mpirun -np 4 --host a:2,b:2 shardplan calibrate cluster -o cluster.yaml",
		"srun --ntasks-per-node 8 shardplan calibrate cluster --device cuda -o gpu.yaml"},
	.run = run,
};
