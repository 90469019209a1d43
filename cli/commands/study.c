#include "cli/commands/study.h"

#include "cli/cores/cores.h"
#include "cli/question/question.h"
#include "schedule/resolve/resolve.h"

enum { MOST_POINTS = 12, MOST_LINES = 4 };

/* --- plans that are varied -------------------------------------------------------------------- */

static const char *line_name(struct arena *arena, const struct plan *plan)
{
	struct text name = {0};

	plan_add_axes(plan, &name);
	text_add(&name, strategy_names[plan->strategy]);
	if (strategy_is_hybrid(plan->strategy))
		text_printf(&name, "/%lld", (long long)plan->mesh.shard);
	const char *copy = arena_strdup(arena, text_string(&name));
	text_finish(&name);
	return copy;
}

static void add_line(struct arena *arena, const struct plan *plan, struct study *study)
{
	for (int l = 0; l < study->n_lines; l++) {
		if (study->lines[l].plan.strategy == plan->strategy)
			return;
	}
	if (study->n_lines == MOST_LINES)
		return;
	study->lines[study->n_lines++] = (struct study_line){.name = line_name(arena, plan),
		.style = (int)plan->strategy,
		.plan = *plan,
		.points = ARENA_ARRAY(arena, struct study_point, MOST_POINTS)};
}

/* Does a study take too long? A pipeline is simulated with all its micro-batches, dozens of
 * times. */
static bool takes_too_long(const struct plan *plan)
{
	return plan->mesh.pipeline > 1;
}

static struct study *study_new(
	struct arena *arena, const struct plan *plan, const struct answer *answer)
{
	struct study *study = ARENA_NEW(arena, struct study);

	study->lines = ARENA_ARRAY(arena, struct study_line, MOST_LINES);
	add_line(arena, plan, study);
	for (int i = 0; answer != NULL && i < answer->n_alternatives; i++) {
		if (answer->alternatives[i].outcome != OUTCOME_IMPOSSIBLE &&
			!takes_too_long(&answer->alternatives[i].plan))
			add_line(arena, &answer->alternatives[i].plan, study);
	}
	return study;
}

/* --- one prediction -----------------------------------------------------------------------------
 */

/* Moves the plan's knobs to another machine; knobs that follow from the number of devices stay
 * open. */
static bool move_plan(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct plan *moved)
{
	struct question question = {.model = model, .topology = topology, .asked = *plan};
	struct error why = {0};

	question.given = KNOBS_OF_FILES;
	question_take_axes(&question, plan);
	question_open(&question, KNOB_GLOBAL_BATCH);
	if (strategy_is_hybrid(plan->strategy))
		question_take(&question, KNOB_SHARD_GROUP, plan);
	return plan_resolve(&question, arena, moved, &why);
}

/* Adds a point. A plan that is impossible there is not an error: its point stays empty. */
static bool add_point(const struct question *question, const struct topology *topology,
	struct study_line *line, int i, struct error *error)
{
	struct study_point *point = &line->points[i];
	struct arena arena = {0};
	struct plan plan;
	struct evaluation evaluation;
	struct error why = {0};
	bool ok = true;

	if (move_plan(&arena, &line->plan, question->model, topology, &plan)) {
		struct question there = *question;
		there.topology = topology;
		point->built =
			plan_evaluate(&there, &plan, EVALUATION_POINT, &arena, &evaluation, &why);
		if (!point->built && why.code == EXIT_CODE_INTERNAL)
			ok = error_set(error, why.code, "%s", why.message);
	}
	if (point->built) {
		const struct prediction *prediction = &evaluation.simulation.prediction;
		point->fits = prediction->fits;
		point->step_time = prediction->step_time;
		point->tokens_per_s_per_gpu = prediction->tokens_per_s_per_gpu;
		point->exposed = prediction->time.exposed_communication;
		point->peak_memory_bytes = prediction->peak_memory_bytes;
	}
	arena_finish(&arena);
	return ok;
}

/* All points of all lines, for several cores. */
struct points {
	const struct question *question;
	const struct topology *topologies; /* one for each point */
	const bool *exist;                 /* whether each machine exists; NULL: all do */
	struct study *study;
	struct error *errors; /* one for each piece */
};

static void add_piece(void *data, int index, int worker)
{
	struct points *points = data;
	int i = index / points->study->n_lines, l = index % points->study->n_lines;

	(void)worker;
	if (points->exist == NULL || points->exist[i])
		add_point(points->question, &points->topologies[i], &points->study->lines[l], i,
			&points->errors[index]);
}

static bool add_points(struct points *points, int threads, struct error *error)
{
	int n = points->study->n_points * points->study->n_lines;
	struct arena arena = {0};
	bool ok = true;

	points->errors = ARENA_ARRAY(&arena, struct error, n);
	cores_each(threads, n, add_piece, points);
	for (int i = 0; ok && i < n; i++) {
		ok = points->errors[i].code == EXIT_CODE_OK;
		if (!ok)
			*error = points->errors[i];
	}
	arena_finish(&arena);
	return ok;
}

/* --- sizes --------------------------------------------------------------------------------------
 */

/* Sizes 1, 2, 4 ... up to `most`, and `here`. */
static int sizes_around(int64_t here, int64_t most, double *sizes)
{
	int64_t first = 1;
	int n = 0;

	while (most / first >= INT64_C(1) << (MOST_POINTS - 1))
		first *= 2;
	for (int64_t size = first; size <= most && n < MOST_POINTS - 1; size *= 2) {
		if (here > size / 2 && here < size)
			sizes[n++] = (double)here;
		sizes[n++] = (double)size;
	}
	if (n == 0 || sizes[n - 1] < (double)here)
		sizes[n++] = (double)here;
	return n;
}

static bool resize(
	const struct topology *topology, bool nodes, int64_t size, struct topology *other)
{
	struct error why = {0};

	*other = *topology;
	if (!nodes)
		return topology_use_devices(other, size, &why);
	other->nodes = size;
	return true;
}

bool study_scaling(struct arena *arena, const struct question *question, int threads,
	const struct plan *plan, const struct answer *answer, const struct study **study,
	struct error *error)
{
	const struct topology *topology = question->topology;
	bool nodes = topology->network.kind != NETWORK_NONE;
	int64_t here = nodes ? topology->nodes : topology_devices(topology);
	int64_t most = nodes ? max_i64(16, 4 * here) : here;
	double *sizes = ARENA_ARRAY(arena, double, MOST_POINTS);
	const char **names = ARENA_ARRAY(arena, const char *, MOST_POINTS);
	struct study *mine = study_new(arena, plan, answer);
	struct topology *topologies = ARENA_ARRAY(arena, struct topology, MOST_POINTS);
	bool *exist = ARENA_ARRAY(arena, bool, MOST_POINTS);
	struct points points = {question, topologies, exist, mine, NULL};

	*study = NULL;
	if (takes_too_long(plan))
		return true;
	if (most * topology->devices_per_node > TOPOLOGY_MAX_DEVICES)
		most = here;
	mine->n_points = sizes_around(here, most, sizes);
	mine->here = -1;
	for (int i = 0; i < mine->n_points; i++) {
		names[i] = arena_printf(arena, "%.0f", sizes[i]);
		if (sizes[i] == (double)here)
			mine->here = i;
		exist[i] = resize(topology, nodes, (int64_t)sizes[i], &topologies[i]);
	}
	if (!add_points(&points, threads, error))
		return false;
	mine->quantity = mine->unit = nodes ? "nodes" : "devices";
	mine->values = sizes;
	mine->names = names;
	*study = mine->n_points > 1 ? mine : NULL;
	return true;
}

/* --- links --------------------------------------------------------------------------------------
 */

bool study_link(struct arena *arena, const struct question *question, int threads,
	const struct plan *plan, const struct answer *answer, const struct study **study,
	struct error *error)
{
	static const double factors[] = {0.125, 0.25, 0.5, 1, 2, 4};
	const struct topology *topology = question->topology;
	bool network = topology->nodes > 1;
	double now = network ? topology_node_bandwidth(topology) : topology->fabric.bandwidth;
	double *values = ARENA_ARRAY(arena, double, COUNT_OF(factors));
	const char **names = ARENA_ARRAY(arena, const char *, COUNT_OF(factors));

	*study = NULL;
	if (takes_too_long(plan) || topology_devices(topology) < 2 ||
		topology->calibration.n_collectives > 0 ||
		(!network && topology->fabric.kind == FABRIC_SHARED_MEMORY))
		return true;
	struct study *mine = study_new(arena, plan, answer);
	struct topology topologies[COUNT_OF(factors)];
	for (int i = 0; i < COUNT_OF(factors); i++) {
		char name[32];
		topologies[i] = *topology;
		*(network ? &topologies[i].network.nic_bandwidth
			  : &topologies[i].fabric.bandwidth) *= factors[i];
		values[i] = now * factors[i];
		names[i] = arena_strdup(arena, format_bandwidth(name, values[i]));
	}
	*mine = (struct study){network ? "bandwidth out of a node" : "bandwidth of a device's port",
		"", COUNT_OF(factors), values, names, 3, mine->n_lines, mine->lines};
	struct points points = {question, topologies, NULL, mine, NULL};
	*study = mine;
	return add_points(&points, threads, error);
}
