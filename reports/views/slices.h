/* The layout of a unit in memory and who owns what of it: for the view `layout`, as text and as a
 * picture. All counts are elements. */
#ifndef REPORTS_VIEWS_SLICES_H
#define REPORTS_VIEWS_SLICES_H

#include "reports/text/text.h"

/* A run of a unit: one parameter's elements, or padding. */
struct run {
	int slice; /* of the unit; -1: padding */
	int64_t start, elements;
};
/* Parameters and the padding between and behind them, in order, up to unit->gathered. From
 * `arena`; returns their number. Not for LAYOUT_PER_PARAMETER, which pads inside. */
int runs_of(const struct unit *unit, struct arena *arena, struct run **runs);

/* A parameter cut along dimension 0 over `ranks`: the first `whole` ranks have `rows` rows each,
 * the next has `rest` rows, the others none; `padding` elements fill up to equal shards. */
struct cut {
	int64_t rows, whole, rest, padding;
	int64_t row_elements;
};
struct cut cut_of(const struct parameter *parameter, int64_t ranks);

/* Whether every rank has all of it (DDP, NO_SHARD). */
bool layout_is_whole(const struct schedule *schedule);
bool layout_is_per_parameter(const struct schedule *schedule);
/* The first unit with the layout of unit `u`: blocks of a model are laid out alike. */
int layout_like(const struct schedule *schedule, int u);
/* "weight": what a parameter's name ends with inside its unit. */
const char *short_name(const struct schedule *schedule, const struct unit *unit, int slice);

#endif
