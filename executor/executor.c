/* The doors that lead straight into one room. */
#include "executor/executor.h"

#include "executor/calibration/calibration.h"
#include "executor/calibration/gpu/gpu.h"
#include "executor/checkpoints/checkpoints.h"
#include "executor/devices/devices.h"
#include "executor/launch/launch.h"

bool executor_find_checkpoint(struct arena *arena, const char *path, const struct model *model,
	bool verify, struct checkpoint_info *info, struct error *error)
{
	return checkpoint_find(
		arena, path, model, verify ? CHECKPOINT_VERIFY : CHECKPOINT_LOOK, info, error);
}

bool executor_may_begin(struct arena *arena, const char *folder, const char **unfinished)
{
	return run_folder_may_begin(arena, folder, unfinished);
}

bool executor_export_safetensors(const char *checkpoint, const char *path, struct error *error)
{
	return checkpoint_export(checkpoint, path, error);
}

bool executor_launcher(struct launcher *launcher, struct error *error)
{
	return launcher_find(launcher, error);
}

bool executor_detect_local(
	int64_t devices, struct arena *arena, struct topology **topology, struct error *error)
{
	return detect_local(devices, arena, topology, error);
}

bool executor_describe_gpus(
	struct arena *arena, const char **facts, const char **matrix, struct error *error)
{
	return nvml_describe(arena, facts, matrix, error);
}

bool executor_has_gpus(struct error *error)
{
	int gpus;

	return device_cuda_available(&gpus, error);
}

bool executor_calibrate(const struct calibrate_options *options, struct arena *arena,
	struct calibration *calibration, struct error *error)
{
	return calibrate_host(options, arena, calibration, error);
}

double executor_yardstick(void)
{
	return calibrate_yardstick();
}

bool executor_calibrate_gpus(const struct calibrate_options *options, struct arena *arena,
	struct topology *topology, struct error *error)
{
	return calibrate_gpus(options, arena, topology, error);
}

bool executor_describe_cluster(const struct launcher *launcher,
	const struct calibration *calibration, struct arena *arena, struct topology **topology,
	struct error *error)
{
	return describe_cluster(launcher, calibration, arena, topology, error);
}
