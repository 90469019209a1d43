/* The face of executor/: interprets a schedule with real devices and real collectives.
 *
 * `shm` ranks are processes of the same binary, re-executed (never bare-forked), that share memory
 * and need no daemon and no port. Each rank has a compute thread (the interpreter) and one
 * communication thread, so that overlap is real. */
#ifndef EXECUTOR_EXECUTOR_H
#define EXECUTOR_EXECUTOR_H

#include "executor/job/job.h"

/* `path` is a checkpoint, or a folder of checkpoints, of which the newest whole one is taken. What
 * is in its files is looked at too where `verify` (training does so itself). EXIT_CODE_INPUT when
 * there is none, or it is damaged or of another model (NULL: any). Strings live in `arena`. */
bool executor_find_checkpoint(struct arena *arena, const char *path, const struct model *model,
	bool verify, struct checkpoint_info *info, struct error *error);

/* May a run begin in `folder`: was no checkpoint ever completed there? False also where that cannot
 * be told. `unfinished` is the name of what was not completed, or NULL. */
bool executor_may_begin(struct arena *arena, const char *folder, const char **unfinished);

/* The weights of a checkpoint, which was verified, as one safetensors file (fp32, Hugging Face's
 * names and layouts). */
bool executor_export_safetensors(const char *checkpoint, const char *path, struct error *error);

/* Reads the environment, whose strings stay there. EXIT_CODE_USAGE if it contradicts itself. */
bool executor_launcher(struct launcher *launcher, struct error *error);

/* Trains and measures. EXIT_CODE_FAULT when a rank died, hung or computed a non-finite value. Of a
 * launcher's processes one says what went wrong; the message of the others is "".
 * Strings and arrays of `measurement` come from `arena`. */
bool executor_train(const struct executor_job *job, struct arena *arena,
	struct measurement *measurement, struct error *error);

/* A rank process: main() calls this when argv[1] is EXECUTOR_RANK_ARGUMENT. Returns the exit code.
 */
int executor_rank_main(int argc, char **argv);

/* This machine as a topology of `devices` CPU devices (0 = one per core), by hwloc where built in.
 * The calibration is left empty: the caller adds the cached one. */
bool executor_detect_local(
	int64_t devices, struct arena *arena, struct topology **topology, struct error *error);

/* The GPUs of this machine by NVIDIA's driver (NVML, loaded at run time), as two texts for
 * topology_import_add: variables (SHARDPLAN_GPU=...), and a matrix as `nvidia-smi topo -m` prints
 * it. EXIT_CODE_ENVIRONMENT without driver or GPU. */
bool executor_describe_gpus(
	struct arena *arena, const char **facts, const char **matrix, struct error *error);

/* Measures GEMM, attention, memory bandwidth and collectives: of this machine, or of a cluster. */
bool executor_calibrate(const struct calibrate_options *options, struct arena *arena,
	struct calibration *calibration, struct error *error);

/* Seconds of a product that is always the same, on all cores: how fast this machine is just now.
 * Takes a quarter of a second. 0: it could not be measured. */
double executor_yardstick(void);

/* EXIT_CODE_ENVIRONMENT and one line when no GPU can be used here. */
bool executor_has_gpus(struct error *error);

/* Measures the GPUs of this machine, by their own clocks: matrix products, attention, AdamW,
 * memory, launches, PCIe on the first one, NCCL's collectives over groups of all. `topology`
 * describes them: its calibration and host.pcie_bandwidth become what was measured. Of a cluster
 * (options->launcher, a rank for each GPU) the collectives are those of all levels, and the
 * topology becomes the cluster's; ranks other than the first have none (NULL) and only take part.
 * options->ranks is not looked at. */
bool executor_calibrate_gpus(const struct calibrate_options *options, struct arena *arena,
	struct topology *topology, struct error *error);

/* The cluster that was calibrated, as a topology of nodes like this one. What the link between
 * them carries follows from the collectives of `calibration`, which becomes the topology's. */
bool executor_describe_cluster(const struct launcher *launcher,
	const struct calibration *calibration, struct arena *arena, struct topology **topology,
	struct error *error);

#endif
