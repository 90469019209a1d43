/* Private to topologies/: what a calibration has lists of. */
#ifndef TOPOLOGIES_CALIBRATION_LISTS_H
#define TOPOLOGIES_CALIBRATION_LISTS_H

#include "topologies/calibration.h"

extern const char *const calibration_list_names[]; /* keys of `calibration:`, NULL at the end */

/* The lists that `map` has, in order; people edit files, so their order is not relied upon. */
bool calibration_lists_read(struct arena *arena, const struct node *map,
	struct calibration *calibration, struct error *error);
void calibration_lists_write(const struct calibration *calibration, struct writer *writer);
bool calibration_lists_are_empty(const struct calibration *calibration);

#endif
