/* Cores and memory beside a GPU: on a machine of several sockets what lies at another one is
 * reached at half the rate. */
#ifndef EXECUTOR_RANKS_NEAR_H
#define EXECUTOR_RANKS_NEAR_H

#include <sched.h>
#include <stdbool.h>

/* The CPUs that the kernel says are beside a PCI device ("0000:1B:00.0"); false when it does not
 * say. */
bool near_cores(const char *bus_id, cpu_set_t *cores);
/* The calling thread, all that it starts and the memory that they touch first stay there, as far as
 * it may run there: whoever bound it before is heard. */
void near_stay(const char *bus_id);

/* For tests: a folder as /sys/bus/pci/devices. */
void near_use_devices(const char *folder);

#endif
