/* Statistics of the errors of a set of rows. */
#include "accuracy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sorted.h"

bool row_has_time(const struct row *row)
{
	return row->error == NULL && row->status == STATUS_OK && row->measured_step > 0;
}

bool row_has_peak(const struct row *row)
{
	return row->error == NULL && row->status == STATUS_OK && row->measured_peak > 0;
}

double row_time_error(const struct row *row)
{
	return row->prediction.step_time / row->measured_step - 1;
}

double row_exposed_share(const struct row *row)
{
	return row->prediction.time.exposed_communication / row->prediction.step_time;
}

bool row_inside(const struct row *row)
{
	return row->measured_step >= row->prediction.step_time_low &&
	       row->measured_step <= row->prediction.step_time_high;
}

double row_half_width(const struct row *row)
{
	const struct prediction *p = &row->prediction;

	return (p->step_time_high - p->step_time_low) / (2 * p->step_time);
}

/* The predicted peak that corresponds to a source's figure. PyTorch counts a tensor as allocated
 * between the host's calls that make and free it, in the order in which operations are issued,
 * whatever the device has done; that is the ledger's peak. */
static double predicted_peak(const struct row *row)
{
	const struct prediction *p = &row->prediction;

	if (strcmp(row->metric, "active") == 0)
		return (double)p->peak_active_bytes;
	if (strcmp(row->metric, "reserved") == 0)
		return (double)row->reserved_bytes;
	if (strcmp(row->metric, "nvidia-smi") == 0)
		return (double)p->peak_memory_bytes;
	return (double)p->ledger_peak_bytes;
}

double row_peak_error(const struct row *row)
{
	return predicted_peak(row) / 0x1p30 / row->measured_peak - 1;
}

void sample_add(struct arena *arena, struct sample *sample, double error)
{
	if (sample->n == sample->capacity) {
		int capacity = sample->capacity > 0 ? 2 * sample->capacity : 64;
		double *errors = ARENA_ARRAY(arena, double, capacity);
		for (int i = 0; i < sample->n; i++)
			errors[i] = sample->errors[i];
		sample->errors = errors;
		sample->capacity = capacity;
	}
	sample->errors[sample->n++] = error;
}

struct summary sample_summary(const struct sample *sample)
{
	struct summary summary = {.n = sample->n};
	double *sorted = malloc(((size_t)sample->n + 1) * sizeof(*sorted));

	if (sorted == NULL)
		abort();
	if (sample->n > 0) {
		memcpy(sorted, sample->errors, (size_t)sample->n * sizeof(*sorted));
		sort_numbers(sorted, sample->n);
		summary.bias = quantile(sorted, sample->n, 0.5);
		for (int i = 0; i < sample->n; i++) {
			sorted[i] = fabs(sorted[i]);
			summary.mean += sorted[i] / sample->n;
		}
		sort_numbers(sorted, sample->n);
		summary.median = quantile(sorted, sample->n, 0.5);
		summary.p90 = quantile(sorted, sample->n, 0.9);
	}
	free(sorted);
	return summary;
}
