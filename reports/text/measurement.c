/* The text of what `train` measured, and tables of names and values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/text/text.h"

static const struct grid_column fact_columns[] = {{"what", GRID_LEFT}, {"value", GRID_WRAP}};

static void fact(struct grid *grid, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void fact(struct grid *grid, const char *name, const char *format, ...)
{
	struct text text = {0};
	va_list args;

	va_start(args, format);
	text_vprintf(&text, format, args);
	va_end(args);
	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%s", name);
	grid_add(grid, "%s", text_string(&text));
	text_finish(&text);
}

static void fact_string(struct grid *grid, const char *name, const char *value)
{
	if (or_empty(value)[0] != '\0')
		fact(grid, name, "%s", value);
}

static void fact_bytes(struct grid *grid, const char *name, int64_t bytes)
{
	char buffer[32];

	if (bytes != 0)
		fact(grid, name, "%s (%lld bytes)", format_bytes(buffer, (double)bytes),
			(long long)bytes);
}

static void fact_rate(struct grid *grid, const char *name, double bytes_per_s)
{
	char buffer[32];

	if (bytes_per_s > 0)
		fact(grid, name, "%s", format_bandwidth(buffer, bytes_per_s));
}

static void fact_seconds(struct grid *grid, const char *name, double seconds)
{
	char buffer[32];

	if (seconds > 0)
		fact(grid, name, "%s", format_seconds(buffer, seconds));
}

/* The fewest steps of which a statistic is shown; of fewer it would mean nothing. */
enum { LEAST_FOR_DEVIATION = 5, LEAST_FOR_PERCENTILES = 20 };

static int64_t counted_steps(const struct measurement *measured)
{
	return measured->steps - measured->warm_up_steps;
}

bool has_percentiles(const struct measurement *measured)
{
	return counted_steps(measured) >= LEAST_FOR_PERCENTILES;
}

static void step_time_fact(const struct measurement *measured, struct grid *grid)
{
	char mean[32], p50[32], p95[32], deviation[32];
	long long n = (long long)counted_steps(measured);
	struct text text = {0};

	format_seconds(mean, measured->values.step_time);
	format_seconds(deviation, sqrt(measured->step_time_variance));
	format_seconds(p50, measured->step_time_p50);
	format_seconds(p95, measured->step_time_p95);
	if (n <= 1)
		text_printf(&text, "%s (one step: it says nothing of the spread)", mean);
	else
		text_printf(&text, "mean %s, median %s", mean, p50);
	if (n >= LEAST_FOR_PERCENTILES)
		text_printf(&text, ", 95th percentile %s", p95);
	if (n >= LEAST_FOR_DEVIATION)
		text_printf(&text, ", standard deviation %s", deviation);
	if (n > 1)
		text_printf(&text, " of %lld steps%s", n,
			n < LEAST_FOR_DEVIATION ? ", too few for their spread" : "");
	fact(grid, "step time", "%s", text_string(&text));
	text_finish(&text);
}

/* Says that other processes ran too, if the line about the hardware tells it. */
static void add_load(const char *hardware, struct text *text)
{
	const char *cpus = strstr(or_empty(hardware), " CPUs, ");
	const char *load = strstr(or_empty(hardware), "load average ");

	if (cpus == NULL || load == NULL)
		return;
	while (cpus > hardware && cpus[-1] >= '0' && cpus[-1] <= '9')
		cpus--;
	load += strlen("load average ");
	long n_cpus = strtol(cpus, NULL, 10), n_running = strtol(load, NULL, 10);
	if (n_cpus > 0 && n_running > n_cpus)
		text_printf(text,
			"; the machine was shared or overbooked (load average %.*s on %ld CPUs), "
			"alone it is higher",
			(int)strspn(load, "0123456789."), load, n_cpus);
}

static void step_time_facts(const struct measurement *measured, struct grid *grid)
{
	char tokens[32], mfu[32];
	struct text load = {0};

	step_time_fact(measured, grid);
	fact(grid, "throughput", "%s tokens/s per rank",
		format_tokens(tokens, measured->values.tokens_per_s_per_gpu));
	add_load(measured->hardware, &load);
	if (measured->values.mfu > 0)
		fact(grid, "MFU", "%s of %s, attention counted in full%s",
			format_percent(mfu, measured->values.mfu),
			or_empty(measured->values.peak_name), text_string(&load));
	text_finish(&load);
}

static void loss_facts(const struct measurement *measured, struct grid *grid)
{
	int n = measured->n_losses;

	if (n == 0 || measured->losses == NULL)
		return;
	fact(grid, "loss", "%.4f in the first step, %.4f in the last", measured->losses[0],
		measured->losses[n - 1]);
	if (measured->gradient_norms != NULL)
		fact(grid, "gradient norm", "%.4f in the first step, %.4f in the last",
			measured->gradient_norms[0], measured->gradient_norms[n - 1]);
}

void measurement_grid(const struct measurement *measured, struct grid *grid)
{
	grid_init(grid, fact_columns, COUNT_OF(fact_columns));
	fact(grid, "ranks", "%lld", (long long)measured->ranks);
	fact(grid, "steps", "%lld, the first %lld not counted", (long long)measured->steps,
		(long long)measured->warm_up_steps);
	step_time_facts(measured, grid);
	fact_bytes(grid, "peak of the schedule's buffers", measured->values.ledger_peak_bytes);
	fact_bytes(grid, "memory taken, fullest rank", measured->pss_growth_bytes);
	fact_bytes(grid, "memory taken, mean of ranks", measured->pss_growth_mean_bytes);
	if (measured->pss_growth_bytes != 0)
		fact(grid, "memory taken is", "%s",
			"what the kernel counts for a rank (PSS), from its start to the peak; "
			"of pages that ranks share, each counts its part");
	fact_bytes(grid, "allocated outside of the schedule", measured->undeclared_bytes);
	if (measured->device_ranks > 0) {
		fact_bytes(grid, "in use on the GPU", measured->device_used_bytes);
		fact(grid, "its account", "%s; %lld ranks", or_empty(measured->device_account),
			(long long)measured->device_ranks);
	}
	loss_facts(measured, grid);
	fact_string(grid, "weights digest", measured->weights_digest);
	fact_string(grid, "reproducible", measured->reproducible);
	fact_string(grid, "CUDA graphs", measured->cuda_graphs);
	fact_string(grid, "NCCL", measured->nccl);
	fact_string(grid, "buffers of NCCL", measured->nccl_buffers);
	if (measured->paced_operations > 0)
		fact(grid, "paced",
			"%lld operations a step, in %.3gx slow motion; "
			"%lld of all steps were late, by %.3g s in all",
			(long long)measured->paced_operations, measured->slow_motion,
			(long long)measured->late_operations, measured->late);
	fact_string(grid, "schedule digest", measured->values.schedule_digest);
	fact_string(grid, "hardware", measured->hardware);
	fact_string(grid, "versions", measured->versions);
	fact_string(grid, "date", measured->date);
}

void plan_grid(const struct plan *plan, struct grid *grid)
{
	struct arena arena = {0};

	grid_init(grid, fact_columns, COUNT_OF(fact_columns));
	for (int id = 0; id < KNOB_COUNT; id++)
		fact(grid, knob_table[id].field.name, "%s",
			knob_typed((enum knob_id)id, plan, &arena));
	fact(grid, "replicas of the shard group", "%lld", (long long)plan->mesh.replicate);
	arena_finish(&arena);
}

static void device_facts(const struct topology *topology, struct grid *grid)
{
	char memory[32], bandwidth[32];
	const struct device *device = &topology->device;

	fact(grid, "topology", "%s: %lld nodes x %lld devices", or_empty(topology->name),
		(long long)topology->nodes, (long long)topology->devices_per_node);
	fact_string(grid, "source", topology->source);
	fact(grid, "device", "%s, %s, %s", or_empty(device->name),
		format_bytes(memory, (double)device->memory_bytes),
		format_bandwidth(bandwidth, device->memory_bandwidth));
	fact_rate(grid, "link inside a node, per device", topology->fabric.bandwidth);
	if (topology->nodes > 1)
		fact_rate(grid, "out of a node, all NICs", topology_node_bandwidth(topology));
}

static void calibration_facts(const struct calibration *calibration, struct grid *grid)
{
	fact(grid, "cost model", "%s",
		calibration->measured ? "calibrated by measurement"
				      : "prior, not measured on this machine");
	fact_string(grid, "calibration", calibration->provenance);
	fact_string(grid, "calibrated on", calibration->date);
	if (calibration->gemm_flops > 0)
		fact(grid, "matrix products, large", "%.3g FLOP/s per device",
			calibration->gemm_flops);
}

void assumptions_grid(
	const struct explained *explained, const struct topology *topology, struct grid *grid)
{
	const struct prediction *prediction = explained->prediction;
	char causal[32];

	grid_init(grid, fact_columns, COUNT_OF(fact_columns));
	if (topology != NULL) {
		device_facts(topology, grid);
		calibration_facts(&topology->calibration, grid);
	}
	if (prediction != NULL) {
		fact_string(grid, "MFU is relative to", prediction->peak_name);
		if (prediction->mfu_causal > 0)
			fact(grid, "MFU counts",
				"6N + 12 L d s: all of attention; "
				"of its causal half it would be %s",
				format_percent(causal, prediction->mfu_causal));
		fact_string(grid, "interval of the step time (80 %) from",
			prediction->uncertainty_source);
		fact_seconds(grid, "no plan can beat, counting attention's causal half",
			prediction->lower_bound);
		fact_seconds(grid, "this plan cannot beat", prediction->plan_lower_bound);
		fact_string(grid, "schedule digest", prediction->schedule_digest);
	}
	fact(grid, "times", "of the steady step (from the third on)");
	fact(grid, "memory", "the maximum over the first three steps");
	fact(grid, "made by", "shardplan %s", SHARDPLAN_VERSION);
}

void put_text(struct grid *grid, const struct style *style, struct text *text)
{
	grid_text(grid, style, text);
	grid_finish(grid);
}

void put_markdown(struct grid *grid, struct text *text)
{
	grid_markdown(grid, text);
	text_add_char(text, '\n');
	grid_finish(grid);
}

void put_html(struct grid *grid, const char *caption, bool sortable, struct text *text)
{
	grid_html(grid, caption, sortable, text);
	grid_finish(grid);
}

void report_measurement_text(
	const struct measurement *measured, const struct style *style, struct text *text)
{
	struct grid grid;

	measurement_grid(measured, &grid);
	put_text(&grid, style, text);
}
