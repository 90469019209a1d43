/* Private to the folder: which values hardware can have, from what the catalogue has. */
#ifndef TOPOLOGIES_PLAUSIBLE_H
#define TOPOLOGIES_PLAUSIBLE_H

#include "base/base.h"
#include "topologies/topology.h"

struct plausible {
	const char *section, *key;
	enum unit_kind unit;
	bool is_int;        /* the member is an int64_t, else a double */
	size_t offset;      /* in struct topology */
	double least, most; /* of the catalogue */
};
extern const struct plausible topology_plausible[];
extern const int n_topology_plausible;

double plausible_value(const struct plausible *row, const struct topology *topology);
/* Does no hardware have that value? Then `why` says so, with what was probably meant. 0 means not
 * known. */
bool plausible_refuses(
	const struct plausible *row, const struct topology *topology, struct text *why);
/* Is the value within a few times of the catalogue's, or not known? */
bool plausible_usual(const struct plausible *row, double value);
void plausible_print(const struct plausible *row, double value, struct text *text);
/* "70TFLOPS to 2.5PFLOPS": what the catalogue has. */
void plausible_range(const struct plausible *row, struct text *text);

#endif
