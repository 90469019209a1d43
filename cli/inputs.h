/* From what the user names to what it stands for: MODEL, TOPOLOGY, plan and measurement files. */
#ifndef CLI_INPUTS_H
#define CLI_INPUTS_H

#include "schedule/schedule.h"

/* A preset, a name in SHARDPLAN_PATH, a config.json or model file, or the folder of a
 * config.json. */
bool input_model(struct arena *arena, const char *typed, struct model **model, struct error *error);

/* `local`, a catalogue name, NxNODE, a name in SHARDPLAN_PATH (also NxNAME), or a file; of it
 * `gpus` devices (0 = all). */
bool input_topology(struct arena *arena, const char *typed, int64_t gpus,
	struct topology **topology, struct error *error);

/* This machine with `ranks` CPU devices (0 = one per core) and the calibration that `calibrate`
 * cached. Without one, or with one of another machine, a note on stderr says so and the topology
 * carries none. */
bool input_local(
	struct arena *arena, int64_t ranks, struct topology **topology, struct error *error);
/* The GPUs of this machine, as its driver describes them. EXIT_CODE_ENVIRONMENT without. */
bool input_local_gpus(struct arena *arena, struct topology **topology, struct error *error);
/* Where `calibrate` puts it: $XDG_CACHE_HOME/shardplan/local.yaml. EXIT_CODE_ENVIRONMENT when
 * neither that nor HOME is set. */
bool input_local_cache(struct arena *arena, const char **path, struct error *error);

/* A plan file; `contents` is its text. */
bool input_plan_file(struct arena *arena, const char *path, struct plan_file *file,
	const char **contents, struct error *error);

/* A measurement of `file`'s schedule: another digest is EXIT_CODE_INPUT, at its place. */
bool input_measurement(struct arena *arena, const char *path, const struct plan_file *file,
	struct measurement *measurement, struct error *error);

#endif
