/* The face of topologies/: devices, nodes, fabrics, networks, groups of ranks, calibration. */
#ifndef TOPOLOGIES_TOPOLOGIES_H
#define TOPOLOGIES_TOPOLOGIES_H

#include "base/base.h"
#include "topologies/calibration.h"
#include "topologies/topology.h"

/* The catalogue embedded in the binary: one file a node type ("dgx-a100-80gb"), sorted by name. */
extern const struct embedded_file topology_catalogue[];
extern const int n_topology_catalogue;
/* The device of such a file, without reading the rest of it. */
const char *topology_catalogue_device(struct arena *arena, const struct embedded_file *file);

/* A catalogue name ("dgx-h100" = one node) or NxNODE ("2xdgx-a100-80gb"). Unknown names suggest the
 * nearest, those of a device ("16xh100") what to type. `local` is not known here: it is detected at
 * the edge. */
bool topology_load_name(
	struct arena *arena, const char *name, struct topology **topology, struct error *error);

/* Text of a topology file (`shardplan: topology/1`). */
bool topology_parse(struct arena *arena, const char *name, const char *text, size_t length,
	struct topology **topology, struct error *error);

/* The `topology:` map of a plan file; and its inverse, complete with calibration, into the map that
 * is open in `writer`. Writing and reading back gives the same struct, doubles bit for bit. */
bool topology_read(struct arena *arena, const struct node *map, struct topology **topology,
	struct error *error);
void topology_write(const struct topology *topology, struct writer *writer);
/* A whole topology file (`shardplan: topology/1`), appended to `text`. */
void topology_print(const struct topology *topology, enum writer_format format, struct text *text);

/* `--gpus N`: a part of one node, or whole nodes. Anything else is EXIT_CODE_USAGE with the nearby
 * numbers named. Changes `topology`. */
bool topology_use_devices(struct topology *topology, int64_t devices, struct error *error);

/* The kind for another name: "tcp" and "sockets" are "ethernet", not "tcpx". NULL: the word is not
 * known. */
const char *network_kind_meant(const char *word);
/* The generation of a device or an architecture: "h100-sxm" and "sm_90" are "hopper". */
const char *generation_meant(const char *word);

/* Invariants: counts positive, bandwidths positive, network present when nodes > 1, ... `where` is
 * the map it was read from, for positions; NULL for a topology that was detected or changed. */
bool topology_check(const struct topology *topology, const struct node *where, struct error *error);

/* Values that may be a mistake, one line each: far from all of the catalogue, or different from the
 * catalogue's for a device of that name. */
void topology_doubts(const struct topology *topology, struct arena *arena, struct text *lines);

#endif
