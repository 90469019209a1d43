/* Measures the best that the machine can do, for comparison. One thread. */
#ifndef BENCH_KERNELS_MACHINE_H
#define BENCH_KERNELS_MACHINE_H

double cpu_seconds(void); /* of this process: robust against waiting, not against shared caches */

/* fp32 fused multiply-adds in registers, FLOP/s. */
double peak_flops(void);
/* A large memcpy, bytes read and written per second. */
double copy_bandwidth(void);

#endif
