/* A chart of the loss that training measured. */
#include "reports/charts/axes.h"
#include "reports/charts/charts.h"

#include <math.h>

static void loss_range(const struct measurement *measured, double *low, double *high)
{
	*low = INFINITY;
	*high = -INFINITY;
	for (int i = 0; i < measured->n_losses; i++) {
		double loss = measured->losses[i];
		if (isfinite(loss) && loss < *low)
			*low = loss;
		if (isfinite(loss) && loss > *high)
			*high = loss;
	}
}

/* Draws every step of up to 800, and the means of equal stretches of more. */
static void add_loss_line(
	const struct chart *chart, const struct measurement *measured, struct text *text)
{
	int stretch = (measured->n_losses + 799) / 800;
	bool pen_down = false;

	text_add(text, "<path class=\"line\" d=\"");
	for (int i = 0; i < measured->n_losses; i += stretch) {
		double sum = 0;
		int n = 0;
		for (; n < stretch && i + n < measured->n_losses; n++)
			sum += measured->losses[i + n];
		if (!isfinite(sum)) {
			pen_down = false;
			continue;
		}
		text_printf(text, "%c%d %d", pen_down ? 'L' : 'M', chart_x(chart, i + 1),
			chart_y(chart, sum / n));
		pen_down = true;
	}
	text_add(text, "\"/>\n");
}

void chart_loss(const struct measurement *measured, struct text *text)
{
	struct text description = {0};
	double low, high;
	int n = measured->n_losses;

	if (n < 2 || measured->losses == NULL)
		return;
	loss_range(measured, &low, &high);
	if (!(low <= high))
		return;
	double margin = high > low ? (high - low) * 0.06 : 0.5;
	text_printf(&description, "Loss from %.4f in step 1 to %.4f in step %d",
		measured->losses[0], measured->losses[n - 1], n);
	struct chart chart = {axis_make(AXIS_NUMBER, 1, n, 5),
		axis_make(AXIS_NUMBER, low - margin, high + margin, 5), "Loss, measured",
		text_string(&description), "step"};
	chart_begin(&chart, text);
	add_loss_line(&chart, measured, text);
	chart_end(&chart, text);
	text_printf(text, "<p class=\"note\">%s.</p></figure>\n", text_string(&description));
	text_finish(&description);
}
