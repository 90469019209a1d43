/* Integer programmes by GLPK. GLPK aborts the process on an error unless a hook is set. Ours jumps
 * back here, where GLPK's environment, which may be in any state then, is freed as a whole. */
#include "planner/integer/integer.h"

#if HAVE_GLPK

#include <glpk.h>
#include <math.h>
#include <setjmp.h>

enum { TIME_LIMIT_MS = 2000 };
#define GIB           (1024.0 * 1024.0 * 1024.0)
#define MEMORY_MARGIN 1e-7 /* GLPK's tolerance; whole bytes are compared afterwards */
#define ROUNDING      1e-6

struct formulation {
	const struct programme *programme;
	glp_prob *problem;
	int first[PROGRAMME_GROUPS_MAX]; /* column of a group's first choice; column 1 is the time
					  */
	int n_columns;
	int *indices; /* one row's, from 1 */
	double *values;
};

static void add_columns(struct formulation *f)
{
	const struct programme *p = f->programme;
	glp_add_cols(f->problem, f->n_columns);
	glp_set_col_bnds(f->problem, 1, GLP_FR, 0, 0);
	glp_set_obj_coef(f->problem, 1, 1);
	for (int g = 0; g < p->n_groups; g++)
		for (int i = 0; i < p->sizes[g]; i++)
			glp_set_col_kind(f->problem, f->first[g] + i, GLP_BV);
}

static void add_row(struct formulation *f, int type, double low, double high, int n)
{
	int row = glp_add_rows(f->problem, 1);
	glp_set_row_bnds(f->problem, row, type, low, high);
	glp_set_mat_row(f->problem, row, n, f->indices, f->values);
}

static int put(struct formulation *f, int n, int column, double value)
{
	f->indices[n + 1] = column;
	f->values[n + 1] = value;
	return n + 1;
}

static void add_group_rows(struct formulation *f)
{
	for (int g = 0; g < f->programme->n_groups; g++) {
		int n = 0;
		for (int i = 0; i < f->programme->sizes[g]; i++)
			n = put(f, n, f->first[g] + i, 1);
		add_row(f, GLP_FX, 1, 1, n);
	}
}

/* time - sum of terms >= constant */
static void add_time_rows(struct formulation *f)
{
	const struct programme *p = f->programme;
	for (int r = 0; r < p->n_rows; r++) {
		int n = put(f, 0, 1, 1);
		for (int g = 0; g < p->n_groups; g++)
			for (int i = 0; i < p->sizes[g]; i++)
				n = put(f, n, f->first[g] + i, -p->rows[r].term[g][i]);
		add_row(f, GLP_LO, p->rows[r].constant, 0, n);
	}
}

static void add_memory_row(struct formulation *f, const struct programme_memory *memory)
{
	const struct programme *p = f->programme;
	double capacity = (double)memory->capacity / GIB;
	int n = 0;
	for (int g = 0; g < p->n_groups; g++)
		for (int i = 0; i < p->sizes[g]; i++)
			n = put(f, n, f->first[g] + i, (double)memory->bytes[g][i] / GIB);
	add_row(f, GLP_UP, 0, capacity + MEMORY_MARGIN * (1 + fabs(capacity)), n);
}

/* choice_0 - choice_1 <= 0 */
static void add_order_row(struct formulation *f)
{
	const struct programme *p = f->programme;
	int n = 0;
	for (int g = 0; g < 2; g++)
		for (int i = 1; i < p->sizes[g]; i++)
			n = put(f, n, f->first[g] + i, g == 0 ? i : -i);
	add_row(f, GLP_UP, 0, 0, n);
}

static void formulate(struct formulation *f, const struct programme *programme, struct arena *arena)
{
	*f = (struct formulation){.programme = programme, .n_columns = 1};
	for (int g = 0; g < programme->n_groups; g++) {
		f->first[g] = f->n_columns + 1;
		f->n_columns += programme->sizes[g];
	}
	f->indices = ARENA_ARRAY(arena, int, f->n_columns + 1);
	f->values = ARENA_ARRAY(arena, double, f->n_columns + 1);
	f->problem = glp_create_prob();
	add_columns(f);
	add_group_rows(f);
	add_time_rows(f);
	for (int q = 0; q < programme->n_memories; q++)
		add_memory_row(f, &programme->memories[q]);
	if (programme->ordered)
		add_order_row(f);
}

static void read_choices(const struct formulation *f, struct solution *solution)
{
	for (int g = 0; g < f->programme->n_groups; g++)
		for (int i = 0; i < f->programme->sizes[g]; i++)
			if (glp_mip_col_val(f->problem, f->first[g] + i) > 0.5)
				solution->choice[g] = i;
	solution->objective = programme_objective(f->programme, solution->choice);
	solution->bound = fmin(solution->objective, glp_mip_obj_val(f->problem)) * (1 - ROUNDING);
}

enum outcome { UNKNOWN, NONE, FOUND };

/* UNKNOWN: optimality was not proved within the time limit. */
static enum outcome optimise(glp_prob *problem)
{
	glp_smcp relaxed;
	glp_iocp parameters;
	glp_init_smcp(&relaxed);
	relaxed.msg_lev = GLP_MSG_OFF;
	relaxed.tm_lim = TIME_LIMIT_MS;
	if (glp_simplex(problem, &relaxed) != 0)
		return UNKNOWN;
	if (glp_get_status(problem) != GLP_OPT)
		return glp_get_status(problem) == GLP_NOFEAS ? NONE : UNKNOWN;
	glp_init_iocp(&parameters);
	parameters.msg_lev = GLP_MSG_OFF;
	parameters.tm_lim = TIME_LIMIT_MS;
	if (glp_intopt(problem, &parameters) != 0)
		return UNKNOWN;
	if (glp_mip_status(problem) != GLP_OPT)
		return glp_mip_status(problem) == GLP_NOFEAS ? NONE : UNKNOWN;
	return FOUND;
}

/* --- what GLPK aborts on ----------------------------------------------------------------------
 */

struct solving {
	/* The arena is the caller's, so its value is defined after the jump. */
	bool (*solve)(struct solving *solving, struct arena *arena);
	const struct programme *programme;
	struct solution *solution;
	const struct sharing *sharing;
	bool *feasible;
	double *seconds;
};

static void jump_back(void *place)
{
	longjmp(*(jmp_buf *)place, 1);
}

/* Drops the message that GLPK prints before it aborts. */
static int print_nothing(void *unused, const char *text)
{
	(void)unused;
	(void)text;
	return 1;
}

static bool solve_guarded(struct solving *solving, struct arena *arena)
{
	jmp_buf place;
	if (setjmp(place) != 0)
		return false;
	glp_term_hook(print_nothing, NULL);
	glp_error_hook(jump_back, &place);
	bool ok = solving->solve(solving, arena);
	glp_error_hook(NULL, NULL);
	return ok;
}

static bool solve_alone(struct solving *solving)
{
	struct arena arena = {0};
	bool ok = solve_guarded(solving, &arena);
	glp_free_env();
	arena_finish(&arena);
	return ok;
}

/* False also for a solution that exceeds a capacity in whole bytes. */
static bool solve_programme(struct solving *solving, struct arena *arena)
{
	struct formulation f;
	struct solution *solution = solving->solution;
	*solution = (struct solution){0};
	formulate(&f, solving->programme, arena);
	enum outcome outcome = optimise(f.problem);
	if (outcome != FOUND)
		return outcome == NONE;
	solution->feasible = true;
	read_choices(&f, solution);
	return programme_has_room(f.programme, solution->choice) &&
	       programme_is_ordered(f.programme, solution->choice);
}

bool programme_solve_glpk(const struct programme *programme, struct solution *solution)
{
	struct solving solving = {solve_programme, .programme = programme, .solution = solution};
	return solve_alone(&solving);
}

/* --- blocks of a pipeline ---------------------------------------------------------------------
 * Columns 1 .. chunks are what each chunk takes, then the blocks of each stage. */

/* Adds a row for the pace of the stage's chunk: seconds - block * blocks >= own. */
static void add_pace(struct formulation *f, const struct sharing *s, int stage, double own)
{
	int n = put(f, 0, 1 + stage / s->ranks, 1);
	n = put(f, n, f->first[0] + stage, -s->block);
	add_row(f, GLP_LO, own, 0, n);
}

static void formulate_sharing(struct formulation *f, const struct sharing *s, struct arena *arena)
{
	int n_stages = s->ranks * s->chunks, n = 0;
	*f = (struct formulation){.first = {1 + s->chunks}, .n_columns = s->chunks + n_stages};
	f->indices = ARENA_ARRAY(arena, int, f->n_columns + 1);
	f->values = ARENA_ARRAY(arena, double, f->n_columns + 1);
	f->problem = glp_create_prob();
	glp_add_cols(f->problem, f->n_columns);
	for (int c = 1; c <= s->chunks; c++) {
		glp_set_col_bnds(f->problem, c, GLP_LO, 0, 0);
		glp_set_obj_coef(f->problem, c, 1);
	}
	for (int stage = 0; stage < n_stages; stage++) {
		bool first = stage == 0, last = stage == n_stages - 1;
		int column = f->first[0] + stage;
		glp_set_col_kind(f->problem, column, GLP_IV);
		glp_set_col_bnds(f->problem, column, GLP_LO, !first && !last, 0);
		add_pace(f, s, stage, (first ? s->first : 0) + (last ? s->last : 0));
	}
	for (int stage = 0; stage < n_stages; stage++)
		n = put(f, n, f->first[0] + stage, 1);
	add_row(f, GLP_FX, s->blocks, s->blocks, n);
	for (int r = 0; r < s->ranks; r++) {
		n = 0;
		for (int stage = 0; stage < n_stages; stage++)
			if (s->rank[stage] == r)
				n = put(f, n, f->first[0] + stage, 1);
		add_row(f, GLP_UP, 0, s->most[r], n);
	}
}

static bool solve_sharing(struct solving *solving, struct arena *arena)
{
	struct formulation f;
	formulate_sharing(&f, solving->sharing, arena);
	enum outcome outcome = optimise(f.problem);
	*solving->feasible = outcome == FOUND;
	*solving->seconds = outcome == FOUND ? glp_mip_obj_val(f.problem) : 0;
	return outcome != UNKNOWN;
}

bool sharing_solve_glpk(const struct sharing *sharing, bool *feasible, double *seconds)
{
	struct solving solving = {
		solve_sharing, .sharing = sharing, .feasible = feasible, .seconds = seconds};
	return solve_alone(&solving);
}

#else

bool programme_solve_glpk(const struct programme *programme, struct solution *solution)
{
	(void)programme;
	*solution = (struct solution){0};
	return false;
}

bool sharing_solve_glpk(const struct sharing *sharing, bool *feasible, double *seconds)
{
	(void)sharing;
	*feasible = false;
	*seconds = 0;
	return false;
}

#endif
