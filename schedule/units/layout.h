/* Private to units: the layouts of a unit's parameters. */
#ifndef SCHEDULE_LAYOUT_H
#define SCHEDULE_LAYOUT_H

#include "schedule/units/units.h"

/* Adds a parameter of the model to the unit; a layout then says where it lies. */
void unit_add_slice(struct unit *unit, const struct model *model, int parameter);
/* One vector: every parameter begins at a multiple of `alignment` elements, the whole is cut in
 * `group` equal chunks. */
void unit_lay_out_flat(
	struct unit *unit, const struct model *model, int64_t alignment, int64_t group);
/* Every parameter is cut along dimension 0, its rows padded to a multiple of `group`. */
void unit_lay_out_per_parameter(struct unit *unit, const struct model *model, int64_t group);

/* Counts what is gathered in fp8 of units that are laid out. */
void units_count_fp8(const struct plan *plan, const struct model *model, struct unit *units, int n);

#endif
