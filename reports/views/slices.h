/* The layout of a unit in memory, and who owns which part. For the view `layout`, as text and as a
 * picture. All counts are elements. */
#ifndef REPORTS_VIEWS_SLICES_H
#define REPORTS_VIEWS_SLICES_H

#include "reports/text/text.h"

/* A run of elements of a unit: of one parameter, or padding. */
struct run {
	int slice; /* index of the parameter in the unit; -1: padding */
	int64_t start, elements;
};
/* The parameters of a unit, and the padding between and behind them, in order, up to
 * unit->gathered. From `arena`; returns their number. Not for LAYOUT_PER_PARAMETER, which pads
 * inside parameters. */
int runs_of(const struct unit *unit, struct arena *arena, struct run **runs);

/* A parameter cut along dimension 0 over `ranks`: the first `whole` ranks have `rows` rows each,
 * the next has `rest` rows, the others none; `padding` elements fill up to equal shards. */
struct cut {
	int64_t rows, whole, rest, padding;
	int64_t row_elements;
};
struct cut cut_of(const struct parameter *parameter, int64_t ranks);

/* Does every rank have the whole unit (DDP, NO_SHARD)? */
bool layout_is_whole(const struct schedule *schedule);
bool layout_is_per_parameter(const struct schedule *schedule);
/* The first unit with the same layout as unit `u`: most blocks of a model are equal. */
int layout_like(const struct schedule *schedule, int u);
/* The last part of a parameter's name inside its unit, for example "weight". */
const char *short_name(const struct schedule *schedule, const struct unit *unit, int slice);

#endif
