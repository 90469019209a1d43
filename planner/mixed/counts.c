/* The best counts of one family: how many blocks are checkpointed and how many units are kept. */
#include "planner/mixed/counts.h"

#include <math.h>
#include <string.h>

#include "planner/integer/integer.h"
#include "schedule/resolve/resolve.h"

enum { PROPOSALS = 6 };

void family_measure(struct family *family, const struct model *model)
{
	bool root;
	int blocks = (int)model->architecture.layers;
	int units = (int)plan_units(&family->plan, model, &root);
	family->most[COUNT_FULL] = family->full ? blocks : 0;
	family->most[COUNT_SOME] = family->selective ? blocks : 0;
	/* If all units were kept, the plan would belong to another strategy; if all stayed, it
	 * would not offload. */
	family->most[COUNT_UNITS] = family->reshards && units - root > 1 ? units - root - 1 : 0;
	family->most[COUNT_STAYS] = family->offloads && units > 1 ? units - 1 : 0;
}

struct plan family_plan(const struct family *family, const int counts[COUNTS], struct arena *arena)
{
	const struct rows stays = rows_of_offload(OFFLOAD_NONE), kept = rows_of_reshard(false);
	struct plan plan = family->plan;
	int blocks = family->most[COUNT_FULL];
	enum checkpointing *row = ARENA_ARRAY(arena, enum checkpointing, blocks + 1);
	for (int b = 0; b < blocks; b++)
		row[b] = b < counts[COUNT_FULL]   ? CHECKPOINTING_FULL
			 : b < counts[COUNT_SOME] ? CHECKPOINTING_SELECTIVE
						  : CHECKPOINTING_NONE;
	if (blocks > 0)
		plan.activation_checkpointing = rows_make_checkpointing(arena, row, blocks);
	if (counts[COUNT_UNITS] > 0)
		plan.reshard_after_forward = rows_split(arena, &family->plan.reshard_after_forward,
			family->most[COUNT_UNITS] + 1 - counts[COUNT_UNITS], &kept,
			counts[COUNT_UNITS]);
	if (counts[COUNT_STAYS] > 0)
		plan.cpu_offload =
			rows_split(arena, &stays, counts[COUNT_STAYS], &family->plan.cpu_offload,
				family->most[COUNT_STAYS] + 1 - counts[COUNT_STAYS]);
	return plan;
}

/* --- simulating ------------------------------------------------------------------------------- */

enum { FAILED_MAX = 256 };

struct solving {
	const struct family *family;
	struct evaluator *evaluator;
	struct arena arena; /* for plans that are tried */
	/* Mixes that did not fit or took longer than the best one so far. */
	int n_failed, failed[FAILED_MAX][COUNTS];
};

/* The direction in which a count reduces time and needs more memory. */
static const int better[COUNTS] = {
	[COUNT_FULL] = -1, [COUNT_SOME] = -1, [COUNT_UNITS] = 1, [COUNT_STAYS] = 1};

/* Predicts a mix without a memory limit. */
static bool look(struct solving *solving, const int *counts, struct prediction *prediction,
	struct error *error)
{
	arena_reset(&solving->arena);
	struct plan plan = family_plan(solving->family, counts, &solving->arena);
	return evaluator_run_unlimited(solving->evaluator, &plan, prediction, error);
}

static bool has_failed(const struct solving *solving, const int *counts)
{
	for (int i = 0; i < solving->n_failed; i++)
		if (memcmp(solving->failed[i], counts, sizeof(solving->failed[i])) == 0)
			return true;
	return false;
}

static void note_failed(struct solving *solving, const int *counts)
{
	if (solving->n_failed < FAILED_MAX)
		memcpy(solving->failed[solving->n_failed++], counts, sizeof(solving->failed[0]));
}

/* Does the mix fit with room and take less than `slow` seconds (0: no limit)? Then `*step_time` is
 * its time. `slow` never grows, so a mix that failed once would fail again. */
static bool judge(struct solving *solving, const int *counts, double slow, double *step_time,
	bool *fits, struct error *error)
{
	struct prediction prediction;
	*fits = false;
	if (has_failed(solving, counts))
		return true;
	arena_reset(&solving->arena);
	struct plan plan = family_plan(solving->family, counts, &solving->arena);
	if (!evaluator_judge_on(solving->evaluator, solving->evaluator->question->topology, &plan,
		    slow, &prediction, error))
		return false;
	*fits = has_room(solving->evaluator->question, &plan, &prediction) &&
		(slow <= 0 || prediction.step_time < slow);
	if (*fits)
		*step_time = prediction.step_time;
	else
		note_failed(solving, counts);
	return true;
}

/* --- proposals -------------------------------------------------------------------------------- */

/* The cost of one more of each count, averaged between none and the most. */
struct slopes {
	double time[COUNTS];
	int64_t bytes[COUNTS];
	double base_time;
	int64_t base_bytes, limit;
};

static bool measure_slopes(struct solving *solving, struct slopes *slopes, struct error *error)
{
	int counts[COUNTS] = {0};
	struct prediction base, with;
	if (!look(solving, counts, &base, error))
		return false;
	*slopes = (struct slopes){.base_time = base.step_time,
		.base_bytes = prediction_wanted_bytes(&base),
		.limit = base.memory_limit_bytes};
	for (int c = 0; c < COUNTS; c++) {
		int most = solving->family->most[c];
		if (most == 0)
			continue;
		counts[c] = most;
		if (c == COUNT_FULL && solving->family->selective)
			counts[COUNT_SOME] = most;
		if (!look(solving, counts, &with, error))
			return false;
		slopes->time[c] = (with.step_time - base.step_time) / most;
		slopes->bytes[c] = (prediction_wanted_bytes(&with) - slopes->base_bytes) / most;
		counts[c] = counts[COUNT_SOME] = 0;
	}
	if (solving->family->selective) { /* blocks in `full` are also counted in `some` */
		slopes->time[COUNT_FULL] -= slopes->time[COUNT_SOME];
		slopes->bytes[COUNT_FULL] -= slopes->bytes[COUNT_SOME];
	}
	return true;
}

static void make_programme(const struct family *family, const struct slopes *slopes,
	struct arena *arena, struct programme *programme)
{
	*programme = (struct programme){
		.n_groups = COUNTS, .n_rows = 1, .n_memories = 1, .ordered = family->selective};
	programme->rows[0].constant = slopes->base_time;
	programme->memories[0].capacity = slopes->limit - slopes->base_bytes;
	for (int c = 0; c < COUNTS; c++) {
		int n = family->most[c] + 1;
		double *time = ARENA_ARRAY(arena, double, n);
		int64_t *bytes = ARENA_ARRAY(arena, int64_t, n);
		for (int i = 0; i < n; i++) {
			time[i] = i * slopes->time[c];
			bytes[i] = i * slopes->bytes[c];
		}
		programme->sizes[c] = n;
		programme->rows[0].term[c] = time;
		programme->memories[0].bytes[c] = bytes;
	}
}

static bool solve(const struct programme *programme, int counts[COUNTS])
{
	struct solution solution;
	programme_solve_bounding(programme, &solution);
	for (int c = 0; c < COUNTS && solution.feasible; c++)
		counts[c] = solution.choice[c];
	return solution.feasible;
}

/* Solves the programme for the best counts. If they do not fit, the capacity is lowered by the
 * excess and it is solved again. */
static bool propose(struct solving *solving, const struct slopes *slopes, struct arena *arena,
	int counts[COUNTS], double *step_time, bool *exists, struct error *error)
{
	struct programme programme;
	struct prediction prediction;
	*exists = false;
	make_programme(solving->family, slopes, arena, &programme);
	for (int i = 0; i < PROPOSALS && !*exists && solve(&programme, counts); i++) {
		if (!look(solving, counts, &prediction, error))
			return false;
		int64_t over = prediction_wanted_bytes(&prediction) - prediction.memory_limit_bytes;
		*exists =
			has_room(solving->evaluator->question, &solving->family->plan, &prediction);
		*step_time = prediction.step_time;
		programme.memories[0].capacity -= max_i64(over, slopes->limit / 1000);
	}
	return true;
}

/* --- improving a proposal by simulation ------------------------------------------------------- */

static bool is_mix(const struct family *family, const int *counts)
{
	for (int c = 0; c < COUNTS; c++)
		if (counts[c] < 0 || counts[c] > family->most[c])
			return false;
	return !family->selective || counts[COUNT_FULL] <= counts[COUNT_SOME];
}

/* Moves one count as far as that makes the mix faster and it still fits, in steps that double while
 * they succeed and then halve. */
static bool push(struct solving *solving, int count, int counts[COUNTS], double *step_time,
	bool *moved, struct error *error)
{
	bool grows = true;
	for (int step = 1; step > 0;) {
		int next[COUNTS];
		bool improves = false;
		for (int c = 0; c < COUNTS; c++)
			next[c] = counts[c];
		next[count] += step * better[count];
		if (is_mix(solving->family, next) &&
			!judge(solving, next, *step_time, step_time, &improves, error))
			return false;
		if (improves)
			counts[count] = next[count];
		*moved = *moved || improves;
		grows = grows && improves;
		step = grows ? 2 * step : step / 2;
	}
	return true;
}

/* Moves one count further and another one back by as much memory, because the gain of one more is
 * not the same everywhere. */
static bool exchange(struct solving *solving, const struct slopes *slopes, int counts[COUNTS],
	double *step_time, bool *moved, struct error *error)
{
	for (int pair = 0; pair < COUNTS * COUNTS; pair++) {
		int gain = pair / COUNTS, pay = pair % COUNTS, next[COUNTS];
		double by = fabs((double)slopes->bytes[gain]) / fabs((double)slopes->bytes[pay]);
		bool improves = false;
		if (gain == pay || !isfinite(by) || by > solving->family->most[pay])
			continue;
		for (int c = 0; c < COUNTS; c++)
			next[c] = counts[c];
		next[gain] += better[gain];
		next[pay] -= better[pay] * (int)fmax(1, ceil(by));
		if (!is_mix(solving->family, next))
			continue;
		if (!judge(solving, next, *step_time, step_time, &improves, error))
			return false;
		for (int c = 0; c < COUNTS && improves; c++)
			counts[c] = next[c];
		*moved = *moved || improves;
		pair -= improves; /* tries the same pair again */
	}
	return true;
}

bool family_solve(const struct family *family, struct evaluator *evaluator, struct arena *arena,
	int counts[COUNTS], double *step_time, bool *exists, struct error *error)
{
	struct solving solving = {.family = family, .evaluator = evaluator};
	struct slopes slopes;
	int smallest[COUNTS] = {family->most[COUNT_FULL], family->most[COUNT_SOME]};
	bool ok = judge(&solving, smallest, 0, step_time, exists, error);
	bool moved = ok && *exists;
	if (moved)
		ok = measure_slopes(&solving, &slopes, error) &&
		     propose(&solving, &slopes, arena, counts, step_time, exists, error);
	moved = ok && *exists;
	while (ok && moved) {
		moved = false;
		for (int c = 0; c < COUNTS && ok; c++)
			ok = family->most[c] == 0 ||
			     push(&solving, c, counts, step_time, &moved, error);
		ok = ok && exchange(&solving, &slopes, counts, step_time, &moved, error);
	}
	arena_finish(&solving.arena);
	return ok;
}
