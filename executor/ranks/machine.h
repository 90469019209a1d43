/* Facts about this machine, this process and this build. */
#ifndef EXECUTOR_RANKS_MACHINE_H
#define EXECUTOR_RANKS_MACHINE_H

#include <stdbool.h>

#include "base/base.h"
#include "topologies/topologies.h"

/* CPUs that the calling thread may run on: in a rank that is bound to cores, its own. */
int64_t machine_cpus(void);
/* Bytes of RAM; and how many can be had without swapping (INT64_MAX when unknown). */
int64_t machine_memory(void);
int64_t machine_available_memory(void);
/* Hz as /proc/cpuinfo says it; 0 when it does not. */
double machine_clock(void);
/* Does the CPU's list of features contain the words, with their blanks (" avx2 ")? */
bool machine_has_flag(const char *flag);
/* "model name" of /proc/cpuinfo, else the machine's architecture. */
const char *machine_cpu_name(struct arena *arena);

/* The adapters in a folder as /sys/class/infiniband, those that are up: the kind that there are
 * most of, and how many. Nothing changes where there are none. */
void machine_network(const char *folder, enum network_kind *kind, int64_t *adapters);

/* Proportional set size of this process, bytes, without pages of files: of the program's, the part
 * changes when another run begins or ends. 0 when the kernel does not say. Allocates nothing. */
int64_t machine_pss(void);

/* One line each, for the record of a measurement. `cpus`: that were used. */
const char *machine_hardware(struct arena *arena, int64_t cpus);
const char *machine_versions(const char *kernels, struct arena *arena);
const char *machine_date(struct arena *arena); /* ISO 8601, UTC */

#endif
