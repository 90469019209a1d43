/* `calibrate`: measures this machine and keeps what it found as a topology. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/files.h"
#include "cli/inputs.h"
#include "cli/output.h"
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
	text_column(text, 34);
	text_printf(text, "%10s + bytes / %s, from %s\n", format_seconds(latency, piece->latency),
		format_bandwidth(bandwidth, piece->bandwidth),
		format_bytes(size, (double)piece->from_bytes));
}

static void add_measured(const struct topology *topology, struct text *text)
{
	const struct calibration *c = &topology->calibration;

	text_printf(text, "%s: %s, %lld cores\n\n", topology->name, topology->device.name,
		(long long)topology->host.cores);
	add_rate(text, "matrix products, one core", c->gemm_flops * 1e-9, "GFLOP/s");
	add_rate(text, "attention forward", c->attention_forward_flops * 1e-9, "GFLOP/s");
	add_rate(text, "attention backward", c->attention_backward_flops * 1e-9, "GFLOP/s");
	add_rate(text, "memory, one core", c->memory_bandwidth * 1e-9, "GB/s");
	add_rate(text, "memory, all cores", c->memory_bandwidth_shared * 1e-9, "GB/s");
	add_rate(text, "optimizer", c->optimizer_bandwidth * 1e-9, "GB/s");
	add_rate(text, "a kernel costs", c->kernel_overhead * 1e6, "us");
	add_rate(text, "an operation costs the host", c->host_overhead * 1e6, "us");
	for (int i = 0; i < c->n_collectives; i++)
		add_collective(&c->collectives[i], text);
}

static bool measure(
	const struct invocation *invocation, struct topology **topology, struct error *error)
{
	const struct calibrate_options options = {
		.quick = argument_given(&invocation->arguments, "quick"),
		.report = isatty(STDERR_FILENO) ? report_line : NULL,
	};

	return executor_detect_local(0, invocation->arena, topology, error) &&
	       executor_calibrate(&options, invocation->arena, &(*topology)->calibration, error);
}

/* As a file of its own, and where `local` looks for it unless -o says otherwise. */
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

static bool print(const struct invocation *invocation, const struct topology *topology, bool aside,
	struct error *error)
{
	struct text text = {0};
	struct writer writer;

	if (argument_given(&invocation->arguments, "json")) {
		document_begin(&writer, &text, "shardplan/topology/1");
		topology_write(topology, &writer);
		writer_finish(&writer);
	} else {
		add_measured(topology, &text);
	}
	bool ok = aside ? output_aside(&text) : output_text(&text, error);
	text_finish(&text);
	return ok;
}

static bool run(struct invocation *invocation, struct error *error)
{
	struct topology *topology;
	const char *path, *what = invocation->arguments.operands[0];

	if (strcmp(what, "local") != 0)
		return error_set(error, EXIT_CODE_USAGE,
			"calibrate %.100s: this version measures `local` only", what);
	if (!measure(invocation, &topology, error) || !keep(invocation, topology, &path, error))
		return false;
	bool aside = strcmp(path, "-") == 0;
	if (!aside)
		output_note("the calibration is in %s", path);
	return print(invocation, topology, aside, error);
}

const struct command command_calibrate = {
	.name = "calibrate",
	.summary = "measure this machine, for predictions on `local`",
	.operands = "local",
	.least = 1,
	.most = 1,
	.details = "Measures matrix products, attention, memory and the collectives of local "
		   "ranks, prints them, and keeps them where `local` finds them (`shardplan help "
		   "environment`) or in FILE, which is a topology file.",
	.examples = {"shardplan calibrate local", "shardplan calibrate local --quick -o here.yaml"},
	.run = run,
};
