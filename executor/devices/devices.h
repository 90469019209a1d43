/* Devices: GPUs through NVIDIA's driver, and this machine as a topology. */
#ifndef EXECUTOR_DEVICES_H
#define EXECUTOR_DEVICES_H

#include "executor/devices/cuda.h"
#include "executor/devices/gpu.h"
#include "executor/devices/interface.h"
#include "executor/devices/kernel_choices.h"
#include "executor/devices/stopwatch.h"

/* This machine as a topology of `devices` CPU devices (0 = one per core), by hwloc where built in.
 * The calibration is left empty: the caller adds the cached one. */
bool detect_local(
	int64_t devices, struct arena *arena, struct topology **topology, struct error *error);

#endif
