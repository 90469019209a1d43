#include "cli/commands/retarget.h"

#include <math.h>
#include <string.h>

#include "cli/question/question.h"
#include "schedule/resolve/resolve.h"

bool plan_runs_on_cpus(const struct plan_file *file, int64_t ranks, double clip)
{
	return file->plan.runtime == RUNTIME_SHARDPLAN &&
	       file->topology->device.kind == DEVICE_CPU && plan_ranks(&file->plan) == ranks &&
	       file->plan.clip == clip;
}

bool plan_is_trainable(const struct plan_file *file, int64_t ranks, double clip)
{
	return plan_runs_on_cpus(file, ranks, clip) && file->topology->nodes == 1;
}

bool plan_runs_on_gpus(const struct plan_file *file, int64_t ranks, double clip)
{
	return file->plan.runtime == RUNTIME_SHARDPLAN && plan_ranks(&file->plan) == ranks &&
	       file->plan.clip == clip && file->plan.mesh.pipeline == 1 &&
	       file->plan.mesh.tensor == 1 && file->plan.mesh.context == 1 &&
	       file->plan.mesh.expert == 1;
}

/* Takes the arithmetic of our runtime, and for knobs that it lacks the nearest value that it
 * has. */
static void take_runtime(struct plan *plan, bool keeps_dtypes)
{
	if (!keeps_dtypes) {
		plan->param_dtype = plan->master_dtype = plan->reduce_dtype = DTYPE_FP32;
		plan->fp8 = FP8_OFF;
	}
	/* The expected load of experts is dropped, because our runtime would take it for a limit
	 * that a run may not exceed. */
	if (plan->runtime != RUNTIME_SHARDPLAN)
		plan->expert_load = 0;
	plan->runtime = RUNTIME_SHARDPLAN;
	plan->libraries = libraries_unknown;
	for (int id = 0; id < KNOB_IN_MESH; id++)
		knob_take_honoured((enum knob_id)id, plan);
}

/* Groups of resharding that no longer divide the shard group become the whole group. The root stays
 * gathered if the runtime cannot do otherwise. */
static void take_reshard_groups(struct plan *plan, struct arena *arena)
{
	const struct rows *rows = &plan->reshard_after_forward;
	int32_t n = rows->n > 0 ? rows->n : 1;
	int64_t *groups = ARENA_ARRAY(arena, int64_t, n);

	if (plan_reshards_root(plan) && runtime_of(plan->runtime)->reshards_root)
		return;
	for (int32_t i = 0; i < n; i++) {
		groups[i] = plan_reshard_group_at(plan, i);
		if (groups[i] > 0 &&
			(plan->mesh.shard % groups[i] != 0 || groups[i] >= plan->mesh.shard))
			groups[i] = RESHARD_WHOLE;
	}
	plan->reshard_after_forward = rows_make_reshard(arena, groups, n);
}

/* A hybrid strategy keeps its shard group if that divides the ranks; else the group becomes their
 * greatest common divisor, and there is none if that is 1. */
static void take_ranks(struct plan *plan, int64_t ranks)
{
	int64_t shard = plan->mesh.shard, rest = ranks;

	plan->mesh = (struct mesh){1, ranks, 1, 1, 1, 1};
	if (plan->strategy == STRATEGY_NO_SHARD) {
		plan->mesh.shard = 1;
		plan->mesh.replicate = ranks;
	} else if (strategy_is_hybrid(plan->strategy)) {
		while (rest != 0) {
			int64_t remainder = shard % rest;
			shard = rest;
			rest = remainder;
		}
		plan->mesh.shard = shard;
		plan->mesh.replicate = ranks / shard;
	}
}

/* Keeps the global batch if the ranks divide it, else the accumulation. */
static void take_batch(struct plan *plan)
{
	/* Smaller micro-batches do the same work on any number of ranks, and with exact sums to the
	 * same bits. */
	while (plan->gradient_sums == SUMS_EXACT && plan->micro_batch > 1 &&
		plan->global_batch % (plan->micro_batch * plan_data_parallel(plan)) != 0)
		plan->micro_batch--;

	int64_t together = plan->micro_batch * plan_data_parallel(plan);

	if (plan->global_batch % together == 0)
		plan->grad_accum = plan->global_batch / together;
	plan->global_batch = plan->grad_accum * together;
}

/* Sets the ranks, with or without the plan's stages, tensor, context and expert ranks, and adapts
 * knobs that depend on them. */
static void take_mesh(struct arena *arena, struct plan *plan, int64_t ranks, bool divides)
{
	const int64_t expert = divides ? plan->mesh.expert : 1;
	const int64_t pipeline = divides ? plan->mesh.pipeline : 1;
	const int64_t tensor = divides ? plan->mesh.tensor : 1;
	const int64_t context = divides ? plan->mesh.context : 1;

	take_ranks(plan, ranks / (pipeline * tensor * context));
	plan->mesh.pipeline = pipeline;
	plan->mesh.tensor = tensor;
	plan->mesh.context = context;
	plan->mesh.expert = expert;
	plan->expert_tensor = expert > 1 ? 1 : 0;
	plan->expert_load = expert > 1 ? plan->expert_load : 0;
	if (pipeline == 1) {
		plan->pipeline_schedule = PIPELINE_1F1B;
		plan->virtual_stages = 0;
		plan->layers_per_stage = (struct rows){0};
	}
	take_reshard_groups(plan, arena);
	take_batch(plan);
}

/* Keeps stages, tensor, context and expert ranks if they can be executed: on CPUs, for a model that
 * our runtime can divide. */
static bool settle_mesh(struct arena *arena, const struct plan_file *file,
	const struct adaptation_target *target, struct adaptation *adaptation, struct error *error)
{
	int64_t ranks = topology_devices(adaptation->topology);
	const struct mesh *mesh = &adaptation->plan.mesh;
	int64_t divides = mesh->pipeline * mesh->tensor * mesh->context;
	struct plan divided = adaptation->plan;
	struct error ignored = {0};

	if ((divides > 1 || mesh->expert > 1) && !target->gpus && ranks % divides == 0) {
		take_mesh(arena, &divided, ranks, true);
		if (plan_check(&divided, file->model, adaptation->topology, &ignored)) {
			adaptation->plan = divided;
			return true;
		}
	}
	take_mesh(arena, &adaptation->plan, ranks, false);
	return plan_check(&adaptation->plan, file->model, adaptation->topology, error);
}

static void note_knob(struct adaptation *adaptation, struct arena *arena, enum knob_id id,
	const struct plan *from, const struct plan *to)
{
	if (!knob_equal(id, from, to))
		adaptation->changes[adaptation->n_changes++] =
			arena_printf(arena, "%s: %s -> %s", knob_table[id].field.name,
				knob_typed(id, from, arena), knob_typed(id, to, arena));
}

static void note_axis(struct adaptation *adaptation, struct arena *arena, const struct field *field,
	const struct mesh *from, const struct mesh *to)
{
	struct text before = {0}, after = {0};

	if (fields_equal_one(field, from, to))
		return;
	fields_print_one(field, from, &before);
	fields_print_one(field, to, &after);
	adaptation->changes[adaptation->n_changes++] = arena_printf(
		arena, "mesh %s: %s -> %s", field->name, text_string(&before), text_string(&after));
	text_finish(&before);
	text_finish(&after);
}

static void note_changes(
	struct adaptation *adaptation, const struct plan_file *file, struct arena *arena)
{
	const struct plan *from = &file->plan, *to = &adaptation->plan;

	adaptation->changes = ARENA_ARRAY(arena, const char *, KNOB_COUNT + 7);
	if (adaptation->topology != file->topology &&
		(adaptation->topology->emulated || file->topology->device.kind != DEVICE_CPU ||
			plan_ranks(from) != plan_ranks(to)))
		adaptation->changes[adaptation->n_changes++] =
			arena_printf(arena, "topology: %lld x %s -> %lld x %s%s",
				(long long)plan_ranks(from), file->topology->device.name,
				(long long)plan_ranks(to), adaptation->topology->device.name,
				adaptation->topology->emulated ? ", emulated" : "");
	for (int id = 0; id < KNOB_IN_MESH; id++)
		note_knob(adaptation, arena, (enum knob_id)id, from, to);
	for (int i = 0; mesh_fields[i].name != NULL; i++)
		note_axis(adaptation, arena, &mesh_fields[i], &from->mesh, &to->mesh);
}

/* GPUs issue operations as the emulated devices do, so the topology is not marked `emulated`. */
static bool find_gpus(struct arena *arena, const struct adaptation_target *target,
	struct topology **topology, struct error *error)
{
	if (!input_topology(arena, target->emulate, target->ranks, topology, error))
		return false;
	return (*topology)->device.kind == DEVICE_GPU ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--emulate %.100s: expected a topology of GPUs for --device cuda, got %s; "
		       "use --device host",
		       target->emulate, (*topology)->device.name);
}

static bool find_topology(struct arena *arena, const struct plan_file *file,
	const struct adaptation_target *target, struct topology **topology, struct error *error)
{
	if (target->gpus && target->emulate != NULL)
		return find_gpus(arena, target, topology, error);
	if (target->gpus && target->ranks == plan_ranks(&file->plan)) {
		*topology = file->topology;
		return true;
	}
	if (target->gpus)
		return error_set(error, EXIT_CODE_USAGE,
			"--ranks %lld: the plan is for %lld GPUs, "
			"and --device cuda trains it as it is; plan for that many with --gpus",
			(long long)target->ranks, (long long)plan_ranks(&file->plan));
	if (target->emulate == NULL)
		return input_local(arena, target->ranks, topology, error);
	if (!input_topology(arena, target->emulate, target->ranks, topology, error))
		return false;
	(*topology)->emulated = true;
	return true;
}

bool adapt_plan(struct arena *arena, const struct plan_file *file,
	const struct adaptation_target *target, struct adaptation *adaptation, struct error *error)
{
	*adaptation = (struct adaptation){.from = &file->plan, .plan = file->plan};
	if (!find_topology(arena, file, target, &adaptation->topology, error))
		return false;
	/* A plan of our runtime for CPUs has dtypes that CPUs can train with; GPUs can train with
	 * all. */
	bool keeps_dtypes = target->gpus || (file->plan.runtime == RUNTIME_SHARDPLAN &&
						    file->topology->device.kind == DEVICE_CPU);
	take_runtime(&adaptation->plan, keeps_dtypes);
	if (target->exact_sums)
		adaptation->plan.gradient_sums = SUMS_EXACT;
	adaptation->plan.clip = target->clip;
	if (!settle_mesh(arena, file, target, adaptation, error))
		return false;
	note_changes(adaptation, file, arena);
	return true;
}

static double communication(const struct time_split *time)
{
	return time->all_gather + time->reduce_scatter + time->all_reduce + time->all_to_all;
}

static double ratio(double here, double modelled)
{
	return modelled > 0 ? here / modelled : 0;
}

/* All ranks share one GPU of this machine, which computes for one after the other. */
bool adapt_gpu_slow_motion(
	struct arena *arena, const struct plan_file *emulated, double *factor, struct error *error)
{
	static const double reserve = 1.25;
	enum dtype dtype = emulated->plan.param_dtype;
	const struct device *there = &emulated->topology->device;
	struct topology *here;

	if (!input_local_gpus(arena, &here, error))
		return false;
	*factor = reserve * (double)plan_ranks(&emulated->plan) *
		  ratio(device_peak_flops(there, dtype), device_peak_flops(&here->device, dtype));
	*factor = fmax(1, *factor);
	return true;
}

bool adapt_slow_motion(struct arena *arena, const struct evaluation *emulated,
	const struct model *model, bool arithmetic, double *factor, struct error *error)
{
	static const double reserve = 1.5;
	const struct time_split *there = &emulated->simulation.prediction.time;
	struct topology *local;
	struct evaluation here;

	if (!input_local(arena, plan_ranks(&emulated->plan), &local, error))
		return false;
	const struct question question = {.model = model, .topology = local};
	if (!plan_evaluate(&question, &emulated->plan, EVALUATION_BRIEF, arena, &here, error))
		return false;
	const struct time_split *time = &here.simulation.prediction.time;
	*factor = ratio(communication(time), communication(there));
	if (arithmetic) {
		*factor = fmax(*factor, ratio(time->compute, there->compute));
		*factor = fmax(*factor, ratio(time->optimizer, there->optimizer));
	}
	*factor = fmax(1, reserve * *factor);
	return true;
}
