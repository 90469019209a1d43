/* Fills struct prediction from what the engine and the memory meter found. */
#include <math.h>
#include <string.h>

#include "schedule/memory/memory.h"
#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"
#include "simulator/results.h"

/* --- time ------------------------------------------------------------------------------------- */

static void fill_time(const struct finished *finished, struct prediction *prediction)
{
	const struct engine *engine = finished->engine;
	double waited = finished->waited;

	prediction->step_time = engines_step_time(finished->engines);
	for (int kind = 0; kind < OP_KIND_COUNT; kind++)
		time_split_add(&prediction->time, (enum op_kind)kind, engine->tally.by_kind[kind]);
	prediction->time.exposed_communication = engine->tally.exposed;
	prediction->time.bubble = engines_bubble(finished->engines, engine->class);
	for (int a = 0; a < GROUP_KIND_COUNT; a++) {
		prediction->axes[a].time = engine->tally.by_axis[a].ran;
		prediction->axes[a].exposed = engine->tally.by_axis[a].exposed;
	}
	for (int i = 0; i < engine->n_ops; i++)
		prediction->time.unaligned_head +=
			engine_times(engine, i) * engine->tasks[i].cost->unaligned;
	prediction->time.data_wait = waited;
	prediction->time.data_loading =
		waited + (double)engine->schedule->plan.grad_accum * engine->batch_cost;
}

/* --- utilisation ------------------------------------------------------------------------------ */

/* Recomputed FLOPs of one rank of a class and step, attention counted in full as MFU does. */
static double recomputed_by(const struct engine *engine)
{
	const struct plan *plan = &engine->schedule->plan;
	const struct model *model = engine->program->model;
	double flops = 0;

	for (int i = 0; i < engine->n_ops; i++) {
		const struct op *op = &engine->program->ops[i];
		double times = engine_times(engine, i);

		if (op->kind != OP_RECOMPUTE)
			continue;
		flops += times * engine->tasks[i].cost->flops;
		for (int m = op->first_module;
			m < op->end_module && attention_is_flash(plan->attention); m++) {
			struct module_work work;

			if (model->modules[m].kind != MODULE_ATTENTION_CORE)
				continue;
			model_module_work(model, m, PASS_FORWARD, plan->micro_batch, plan->seq_len,
				1, plan_attending(plan), &work);
			flops += times * op_rounds(op) * work.attention_flops /
				 (double)plan_attention_rounds(plan); /* the masked half */
		}
	}
	return flops;
}

/* Per rank, as the mean over classes. */
static double recomputed_flops(const struct engines *engines)
{
	double flops = 0;

	for (int c = 0; c < engines->n; c++)
		flops += recomputed_by(&engines->of[c]);
	return flops / engines->n;
}

/* The peak to which MFU is relative: that of the datasheet; on CPUs the best measured product. */
static void fill_peak(const struct topology *topology, enum dtype dtype, struct arena *arena,
	struct prediction *p)
{
	const struct device *device = &topology->device;

	p->peak_flops = device_peak_flops(device, dtype);
	double measured = calibration_gemm_flops(&topology->calibration, dtype);

	if (device->kind == DEVICE_CPU && measured > 0) {
		p->peak_flops = measured * topology_rank_speedup(topology);
		p->peak_name =
			topology->calibration.measured ? "measured GEMM peak" : "prior GEMM peak";
	} else if (p->peak_flops > 0) {
		p->peak_name = arena_printf(arena, "%s %s dense", device->name, dtype_name(dtype));
	}
}

static void fill_utilisation(
	const struct finished *finished, struct arena *arena, struct prediction *prediction)
{
	const struct engines *engines = finished->engines;
	const struct schedule *schedule = engines->of[0].schedule;
	const struct plan *plan = &schedule->plan;
	double tokens = (double)(plan->micro_batch * plan->grad_accum * plan->seq_len);
	double ranks = (double)(engines->n * plan->mesh.tensor * plan->mesh.context);
	double rate = tokens / ranks / prediction->step_time;
	int64_t length = plan_attended_len(plan);
	double model_flops = model_flops_per_token(schedule->model, length);

	prediction->tokens_per_s_per_gpu = rate;
	fill_peak(schedule->topology, plan->param_dtype, arena, prediction);
	if (prediction->peak_flops <= 0)
		return;
	rate /= prediction->peak_flops;
	prediction->mfu = model_flops * rate;
	prediction->mfu_6n = model_flops_6n(schedule->model) * rate;
	prediction->mfu_causal = model_flops_causal(schedule->model, length) * rate;
	prediction->hfu = prediction->mfu + finished->common->recomputed / prediction->step_time /
						    prediction->peak_flops;
}

/* --- memory ----------------------------------------------------------------------------------- */

int64_t device_limit(const struct topology *topology, int64_t asked)
{
	int64_t limit = topology->device.memory_bytes;

	if (asked > 0)
		return asked;
	if (topology->shares_host && topology->host.memory_bytes > 0)
		limit = min_i64(limit, topology->host.memory_bytes / topology->devices_per_node);
	return limit;
}

/* The operation in those iterations of the loops around it. */
static struct op op_at(const struct program *program, int index, const struct cursor *at)
{
	int i = 0, j = 0, depth = 0;

	for (int l = 0; l < program->n_loops; l++) {
		const struct loop *loop = &program->loops[l];

		if (index >= loop->first && index < loop->first + loop->n)
			*(loop->layers != 0 ? &i : &j) = at->round[depth++];
	}
	return program->unfolding != NULL ? program_unfolded(program, index, i, j)
					  : program->ops[index];
}

static const char *unit_name_of(const struct program *program, int unit)
{
	const struct unfolding *unfolding = program->unfolding;

	if (unit < 0)
		return "";
	return unfolding != NULL ? unfolding->units[unit].name : program->units[unit].name;
}

static const char *module_name(const struct program *program, const struct op *op)
{
	const struct model *model = program->model;
	int module = op->end_module - 1;

	if (op_kind_class(op->kind) != OP_CLASS_COMPUTE)
		return unit_name_of(program, op->unit);
	if (op->kind == OP_LOSS)
		return "";
	while (op->layer >= 0 && module > 0 && model->modules[module].kind != MODULE_BLOCK)
		module = model->modules[module].parent;
	return model->modules[module].name;
}

/* A program that is folded, and not for printing, has no names. */
static const char *describe(
	const struct engine *engine, int index, const struct cursor *at, struct arena *arena)
{
	const struct program *program = engine->program;

	if (program->n_loops > 0 && program->unfolding == NULL)
		return "";
	const struct op op = op_at(program, index, at);
	const char *kind = op_kind_name(op.kind), *name = module_name(program, &op);
	const char *blank = name[0] != '\0' ? " " : "";

	if (op.micro_batch < 0)
		return arena_printf(arena, "%s%s%s", kind, blank, name);
	return arena_printf(arena, "%s%s%s, micro-batch %d", kind, blank, name, op.micro_batch);
}

static int standing(const struct engine *engine, int index, const struct cursor *at)
{
	struct cursor here = *at;

	here.step = 0;
	return (int)position_of(engine, &engine->tasks[index], &engine->tasks[index].place, &here);
}

static void fill_ledger(const struct ledger *ledger, struct prediction *prediction)
{
	prediction->ledger_peak_bytes = ledger->peak_bytes;
	prediction->ledger_host_peak_bytes = ledger->host_peak_bytes;
	memcpy(prediction->ledger_category_peak, ledger->category_peak_bytes,
		sizeof(prediction->ledger_category_peak));
}

static void fill_states(const struct engine *engine, struct prediction *prediction)
{
	struct model_states states = schedule_model_states(engine->schedule, engine->class);

	prediction->model_states_parameters = states.parameters;
	prediction->model_states_gradients = states.gradients;
	prediction->model_states_optimizer_state = states.optimizer_state;
}

/* Host memory of a node: what its ranks have offloaded; where devices are parts of the host, all
 * their memory. */
static void fill_host_memory(const struct engine *engine, const struct memory_peaks *peaks,
	struct prediction *prediction)
{
	const struct topology *topology = engine->topology;
	bool gpu = topology->device.kind == DEVICE_GPU;
	int64_t limit = topology->host.memory_bytes, bytes = peaks->host_peak_bytes;

	if (!gpu)
		bytes += prediction->peak_memory_bytes;
	prediction->host_memory_bytes = topology->devices_per_node * bytes;
	if (peaks->host_peak_bytes > 0)
		prediction->host_memory_limit_bytes = limit;
	if (prediction_overflows_host(prediction))
		prediction->fits = FITS_NO;
}

/* Does memory come from PyTorch's allocator? In our own runtime each buffer has an address on a GPU
 * before the first step, whatever is late later; on a CPU there is one heap. */
static bool has_pools(const struct engine *engine)
{
	return engine->topology->device.kind == DEVICE_GPU &&
	       runtime_of(engine->schedule->plan.runtime)->caching_allocator;
}

/* Fills the bytes that a rank of a runtime without pools takes for its buffers. On a GPU places are
 * laid out for any timing that the schedule allows, and leave holes; and the kernels beside the
 * compute stream have a workspace that is not a buffer of the schedule. With more than `enough`
 * bytes in use no place is looked for. */
static void fill_places(const struct finished *finished, int64_t enough, struct arena *scratch,
	struct prediction *p)
{
	const struct engine *engine = finished->engine;
	int64_t workspace = runtime_of(engine->schedule->plan.runtime)->workspace_bytes;

	if (engine->topology->device.kind != DEVICE_GPU)
		return;
	p->places_bytes = p->peak_allocated_bytes;
	if (!finished->is_light && p->peak_allocated_bytes + workspace <= enough)
		p->places_bytes = max_i64(
			p->places_bytes, places_of_class(engine->schedule, engine->class, scratch));
	p->peak_reserved_bytes = p->places_bytes + workspace;
}

/* Does the class surely exceed its limit? The bytes in use without a limit are needed, unless only
 * memory holds the issuing thread back: FSDP1 without its rate limiter. */
static bool surely_overflows(const struct engine *engine, int64_t room, const struct prediction *p)
{
	const struct schedule *schedule = engine->schedule;
	bool held_back = !memory_defers_frees(schedule) || schedule->plan.limit_all_gathers;

	return room <= 0 || (held_back && p->peak_allocated_bytes > room);
}

static void fill_reserved(struct reserved reserved, struct prediction *p)
{
	p->peak_active_bytes = reserved.active;
	p->peak_reserved_bytes = max_i64(reserved.bytes, p->peak_allocated_bytes);
}

/* An allocator that stays below the limit anyway does what it would do without one. */
static void fill_pools(const struct engine *engine, const struct simulation_options *options,
	int64_t room, struct arena *scratch, struct prediction *p)
{
	bool only_fits = options->memory == MEMORY_FITS, over = surely_overflows(engine, room, p);

	p->fits = FITS_NO;
	if (only_fits && over)
		return;
	struct reserved reserved = memory_reserved(engine, only_fits ? room : 0, scratch);
	fill_reserved(reserved, p);
	if (!over)
		p->fits = reserved.within && p->peak_reserved_bytes <= room ? FITS_YES : FITS_TIGHT;
}

/* The allocator stayed below the limit; what it would hold without one is a second figure.
 * Collectives that a retry exposes count as its time. */
static void fill_short(const struct finished *finished, struct prediction *p)
{
	const struct prediction *unlimited = finished->unlimited;

	p->fits = FITS_TIGHT;
	p->allocator_retries = finished->retries;
	fill_reserved(finished->held, p);
	p->peak_wanted_bytes = unlimited->peak_memory_bytes;
	p->time = unlimited->time;
	for (int a = 0; a < GROUP_KIND_COUNT; a++) {
		p->axes[a].time = unlimited->axes[a].time;
		p->axes[a].exposed = unlimited->axes[a].exposed;
	}
	p->time.allocator = p->step_time - unlimited->step_time;
}

static void fill_peaks(const struct engine *engine, const struct memory_peaks *peaks, int64_t fixed,
	struct arena *arena, struct prediction *prediction)
{
	int64_t overhead =
		fixed + prediction->peak_reserved_bytes - prediction->peak_allocated_bytes;

	prediction->peak_memory_bytes = peaks->peak_bytes + overhead;
	prediction->peak_at = "";
	if (peaks->peak_op >= 0) {
		prediction->peak_op = standing(engine, peaks->peak_op, &peaks->peak_at);
		prediction->peak_at = describe(engine, peaks->peak_op, &peaks->peak_at, arena);
	}
	memcpy(prediction->memory_at_peak, peaks->at_peak, sizeof(peaks->at_peak));
	memcpy(prediction->memory_category_peak, peaks->category_peak,
		sizeof(peaks->category_peak));
	prediction->memory_at_peak[CATEGORY_RUNTIME_OVERHEAD] += overhead;
	prediction->memory_category_peak[CATEGORY_RUNTIME_OVERHEAD] += overhead;
}

static void fill_memory(const struct finished *finished, const struct simulation_options *options,
	struct arena *scratch, struct arena *arena, struct prediction *prediction)
{
	const struct engine *engine = finished->engine;
	const struct memory_peaks *peaks = finished->peaks;
	struct fixed_memory outside = schedule_fixed_memory(engine->schedule);
	int64_t fixed = outside.context + outside.communicators, room;

	prediction->communicator_bytes = outside.communicators;
	prediction->peak_op = -1;
	prediction->peak_at = "";
	prediction->memory_limit_bytes =
		device_limit(engine->topology, options->memory_limit_bytes);
	if (options->memory == MEMORY_IGNORED)
		return;
	room = prediction->memory_limit_bytes - fixed;
	/* Streams keep their own free lists (docs/runtimes.md). */
	prediction->peak_allocated_bytes = prediction->peak_reserved_bytes = peaks->peak_bytes;
	if (finished->unlimited != NULL) {
		fill_short(finished, prediction);
	} else if (has_pools(engine) && !finished->is_light) {
		fill_pools(engine, options, room, scratch, prediction);
	} else {
		bool only_fits = options->memory == MEMORY_FITS;
		fill_places(finished, only_fits ? room : INT64_MAX, scratch, prediction);
		prediction->fits = prediction->peak_reserved_bytes <= room ? FITS_YES : FITS_NO;
	}
	fill_peaks(engine, peaks, fixed, arena, prediction);
	fill_host_memory(engine, peaks, prediction);
}

/* --- wire ------------------------------------------------------------------------------------- */

/* Adds bytes to an axis. A group of one rank communicates with nobody. */
static void add_axis(const struct group *group, double bytes, struct prediction *prediction)
{
	struct axis_figures *axis = &prediction->axes[group->kind];

	prediction->wire_bytes_per_rank += bytes;
	if (group->size < 2)
		return;
	axis->ranks = group->size;
	axis->stride = group->stride;
	axis->wire_bytes += bytes;
}

static void add_message(const struct engine *engine, const struct op *op, double times,
	struct prediction *prediction)
{
	add_axis(&engine->schedule->groups[op->group],
		times * collective_wire_bytes(op->kind, 2, op->bytes), prediction);
	prediction->wire_bytes_node_egress +=
		times * message_node_egress(engine->schedule, engine->class, op);
}

/* Are the bytes those of rows of a mixture? Our executor counts its rows; messages with these
 * counts are not rows. */
static bool is_of_rows(const struct schedule *schedule, const struct op *op)
{
	return runtime_of(schedule->plan.runtime)->experts.keeps_room && op->dtype != DTYPE_INT64 &&
	       op->kind == OP_ALL_TO_ALL && schedule->groups[op->group].kind == GROUP_EXPERT;
}

static void fill_wire(const struct engine *engine, struct prediction *prediction)
{
	const struct schedule *schedule = engine->schedule;

	for (int i = 0; i < engine->n_ops; i++) {
		const struct op *op = &engine->program->ops[i];
		enum collective_kind collective;
		const struct group *group;
		int times = engine_times(engine, i);

		if (op_kind_class(op->kind) == OP_CLASS_MESSAGE)
			add_message(engine, op, times, prediction);
		if (!collective_kind_of(op->kind, &collective))
			continue;
		group = &schedule->groups[op->group];
		prediction->collectives[collective] += times;
		double bytes = times * op_wire_bytes(schedule, op);
		add_axis(group, bytes, prediction);
		prediction->wire_bytes_rows += is_of_rows(schedule, op) ? bytes : 0;
		prediction->wire_bytes_node_egress += times * op_node_egress(schedule, op);
	}
}

struct common common_of(const struct engines *engines, const struct simulation_options *options)
{
	const struct schedule *schedule = engines->of[0].schedule;
	struct common common = {.recomputed = recomputed_flops(engines)};

	if (options->no_bounds)
		return common;
	common.lower_bound = lower_bound(&schedule->plan, schedule->model, schedule->topology);
	common.plan_lower_bound = plan_lower_bound(engines);
	return common;
}

void predict(const struct finished *finished, const struct simulation_options *options,
	struct arena *scratch, struct arena *arena, struct prediction *prediction)
{
	const struct engine *engine = finished->engine;

	*prediction = (struct prediction){0};
	fill_time(finished, prediction);
	/* By chance collectives may contend less with retries; but less memory makes no step
	 * faster. */
	if (finished->unlimited != NULL)
		prediction->step_time = fmax(prediction->step_time, finished->unlimited->step_time);
	fill_utilisation(finished, arena, prediction);
	fill_states(engine, prediction);
	fill_ledger(finished->ledger, prediction);
	fill_memory(finished, options, scratch, arena, prediction);
	fill_wire(engine, prediction);
	prediction->lower_bound = finished->common->lower_bound;
	prediction->plan_lower_bound = finished->common->plan_lower_bound;
}

bool simulate_overflow(const struct schedule *schedule, int class,
	const struct simulation_options *options, struct arena *arena, int64_t *held)
{
	const struct engine_options engine_options = engine_options_of(options);
	struct fixed_memory outside = schedule_fixed_memory(schedule);
	struct engine engine;
	int64_t fixed = outside.context + outside.communicators;
	int64_t room = device_limit(schedule->topology, options->memory_limit_bytes) - fixed;
	if (held != NULL)
		*held = fixed;
	engine_init(&engine, schedule, class, &engine_options, arena);
	if (!has_pools(&engine) || memory_defers_frees(schedule))
		return false;
	/* A limit of 0 would be none. */
	struct reserved reserved =
		memory_reserved(&engine, held != NULL ? 0 : max_i64(room, 1), arena);
	if (held != NULL)
		*held += reserved.active;
	return reserved.bytes > room;
}
