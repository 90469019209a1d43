/* The share of measurements in the 80 % interval, and the range that chance alone allows. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>

enum { PERCENT = 80 };

/* The least and the most hits of n tries that a correct 80 % interval has in 95 % of cases. */
static void binomial_band(int n, int *least, int *most)
{
	double log_p = log(PERCENT / 100.0), log_q = log(1 - PERCENT / 100.0), below = 0;

	*least = *most = -1;
	for (int k = 0; k <= n; k++) {
		double term = exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) +
				  k * log_p + (n - k) * log_q);
		below += term;
		if (*least < 0 && below > 0.025)
			*least = k;
		if (*most < 0 && below >= 0.975)
			*most = k;
	}
	if (*most < 0)
		*most = n;
}

/* Prints the row with the widest interval, and the sources of its uncertainty. */
static void print_widest(const struct row_list *rows)
{
	const struct row *widest = NULL;

	for (int i = 0; i < rows->n; i++)
		if (row_has_time(&rows->of[i]) &&
			(widest == NULL || row_half_width(&rows->of[i]) > row_half_width(widest)))
			widest = &rows->of[i];
	if (widest != NULL)
		printf("\nThe widest is %s: +-%.1f %% (one deviation: %s).\n", widest->name,
			100 * row_half_width(widest), widest->prediction.uncertainty_source);
}

void report_intervals(const struct row_list *rows)
{
	printf("\n## Intervals\n\nHow often the measured step time lies in the predicted 80 %% "
	       "interval; the band is where a fair interval lands 95 %% of the time.\n\n"
	       "| part | n | inside %% | band %% | mean half width %% "
	       "|\n|---|---:|---:|---:|---:|\n");
	for (int part = 0; part <= PART_FOUND; part++) {
		int n = 0, inside = 0, least, most;
		double width = 0;
		for (int i = 0; i < rows->n; i++) {
			const struct row *row = &rows->of[i];
			if (!row_has_time(row) || rows->of[i].part != (enum part)part)
				continue;
			n++;
			inside += row_inside(row);
			width += row_half_width(row);
		}
		if (n == 0)
			continue;
		binomial_band(n, &least, &most);
		printf("| %s | %d | %.1f | %.1f..%.1f | %.1f |\n", part_names[part], n,
			100.0 * inside / n, 100.0 * least / n, 100.0 * most / n, 100 * width / n);
	}
	print_widest(rows);
}
