#include "cli/commands/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"

/* A log, unlike a terminal, cannot rewrite a line: it should stay short. */
enum { SECONDS_BETWEEN_LINES = 10 };
#define SECONDS_BETWEEN_UPDATES 0.1

struct progress_output progress_output_start(bool json_lines)
{
	return (struct progress_output){
		.json_lines = json_lines, .terminal = isatty(STDERR_FILENO)};
}

static bool is_due(struct progress_output *output)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	double passed = (double)(now.tv_sec - output->last.tv_sec) +
			1e-9 * (double)(now.tv_nsec - output->last.tv_nsec);
	double pause = output->terminal ? SECONDS_BETWEEN_UPDATES : SECONDS_BETWEEN_LINES;
	if (output->shown && passed < pause)
		return false;
	output->shown = true;
	output->last = now;
	return true;
}

static void print_json_line(const struct progress *progress)
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
	/* The reader of the lines may have exited; training goes on to its measurement. */
	output_text(&text, NULL);
	text_finish(&text);
}

void progress_report(const struct progress *progress, void *data)
{
	struct progress_output *output = data;
	char time[32];

	if (output->json_lines)
		print_json_line(progress);
	bool last = progress->step == progress->steps;
	if ((output->json_lines && !output->terminal) || (!is_due(output) && !last))
		return;
	fprintf(stderr, "%sstep %lld/%lld  loss %.4f  norm %.3g  %s/step  %.0f tokens/s%s",
		output->terminal ? "\r\033[K" : "", (long long)progress->step,
		(long long)progress->steps, progress->loss, progress->gradient_norm,
		format_seconds(time, progress->step_time), progress->tokens_per_s,
		output->terminal ? "" : "\n");
	fflush(stderr);
	output->open = output->terminal;
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
