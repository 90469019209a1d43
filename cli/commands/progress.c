#include "cli/commands/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"

/* A log cannot rewrite a line as a terminal can, so lines come at this interval. */
enum { SECONDS_BETWEEN_LINES = 10 };
#define SECONDS_BETWEEN_UPDATES 0.1

static struct timespec now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time;
}

static double seconds_since(const struct timespec *then)
{
	const struct timespec time = now();

	return (double)(time.tv_sec - then->tv_sec) + 1e-9 * (double)(time.tv_nsec - then->tv_nsec);
}

struct progress_output progress_output_start(bool json_lines)
{
	const struct timespec time = now();

	return (struct progress_output){.json_lines = json_lines,
		.terminal = isatty(STDERR_FILENO),
		.last = time,
		.step = time};
}

/* Is a line due? It is also if the next step would end after it. */
static bool is_due(struct progress_output *output, double step_time)
{
	double passed = seconds_since(&output->last);

	if (!output->shown)
		return true;
	return output->terminal ? passed >= SECONDS_BETWEEN_UPDATES
				: passed + step_time > SECONDS_BETWEEN_LINES;
}

static bool is_silent(const struct progress_output *output)
{
	return output->json_lines && !output->terminal;
}

static void begin_line(struct progress_output *output)
{
	fputs(output->terminal ? "\r\033[K" : "", stderr);
}

static void end_line(struct progress_output *output)
{
	fputs(output->terminal ? "" : "\n", stderr);
	fflush(stderr);
	output->open = output->terminal;
	output->shown = true;
	output->last = now();
}

static void print_json_line(const struct progress *progress, struct error *lost)
{
	struct writer writer;
	struct text text = {0};

	writer_init(&writer, &text, WRITER_JSON_COMPACT);
	writer_int(&writer, "step", progress->step);
	writer_int(&writer, "steps", progress->steps);
	writer_number(&writer, "loss", progress->loss);
	writer_number(&writer, "gradient_norm", progress->gradient_norm);
	writer_number(&writer, "step_time_s", progress->step_time);
	writer_number(&writer, "tokens_per_s", progress->tokens_per_s);
	writer_finish(&writer);
	/* Training goes on until it is measured, then the command ends with this error. */
	output_text(&text, lost);
	text_finish(&text);
}

void progress_report(const struct progress *progress, void *data)
{
	struct progress_output *output = data;
	char time[32];

	if (output->json_lines)
		print_json_line(progress, &output->lost);
	/* The time that the step took here. In slow motion the step's own time is that of the
	 * emulated machine. */
	double took = seconds_since(&output->step);
	output->step = now();
	bool last = progress->step == progress->steps;
	if (is_silent(output) || (!is_due(output, took) && !last))
		return;
	begin_line(output);
	fprintf(stderr, "step %lld/%lld  loss %.4f  norm %.3g  %s/step  %.0f tokens/s",
		(long long)progress->step, (long long)progress->steps, progress->loss,
		progress->gradient_norm, format_seconds(time, progress->step_time),
		progress->tokens_per_s);
	end_line(output);
}

void progress_alive(int64_t done, int64_t steps, void *data)
{
	struct progress_output *output = data;

	if (is_silent(output) || done >= steps ||
		seconds_since(&output->last) < SECONDS_BETWEEN_LINES)
		return;
	begin_line(output);
	fprintf(stderr, "step %lld/%lld  has been running for %.0f s", (long long)done + 1,
		(long long)steps, seconds_since(&output->step));
	end_line(output);
}

void progress_stopping(void *data)
{
	struct progress_output *output = data;

	if (!output->terminal)
		return;
	fputs("\r\033[Kending after this step; once more ends at once\n", stderr);
	output->open = false;
}

void progress_output_end(struct progress_output *output)
{
	if (output->open)
		fputc('\n', stderr);
	output->open = false;
}
