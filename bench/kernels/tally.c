#include "bench/kernels/tally.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void tally_add(struct tally *tally, const char *name, double percent)
{
	if (tally->rows == TALLY_ROWS)
		abort();
	tally->percent[tally->rows] = percent;
	snprintf(tally->name[tally->rows++], TALLY_NAME, "%s", name);
}

void tally_print(const struct tally *tally)
{
	double logarithms = 0.0;
	int reached = 0;

	for (int i = 0; i < tally->rows; i++) {
		reached += tally->percent[i] >= tally->least;
		logarithms += log(tally->percent[i]);
	}
	if (tally->rows == 0)
		return;
	printf("# %d of %d %s reach %.0f %% %s, geometric mean %.1f %%\n", reached, tally->rows,
		tally->what, tally->least, tally->of, exp(logarithms / tally->rows));
	for (int i = 0; i < tally->rows; i++)
		if (tally->percent[i] < tally->least)
			printf("#   below: %5.1f %%  %s\n", tally->percent[i], tally->name[i]);
}
