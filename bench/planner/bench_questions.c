/* Sixty questions (questions.c), or forty of divided models: what `plan` answers, how much faster a
 * plan could be that it did not look at, and what that took. Each runs in a process of its own, so
 * that its memory is its own; a loop that always does the same runs before each, since machines
 * differ and others work on them. Judges nothing.
 *
 * Run: bench_questions [--axes] [--only N,N,...] [--csv FILE] [--compare FILE] [--exhaustive]
 * --csv writes what was answered; --compare lists the answers that differ from a file's;
 * --exhaustive simulates every plan of the space instead, and compares with the search. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "planner/planner.h"
#include "planner/search/search.h"
#include "questions.h"
#include "schedule/plan/plan.h"

enum { ANSWER_MAX = 400, LINE_MAX = 1024 };

struct figures {
	bool asked;
	char answer[ANSWER_MAX]; /* the plan in one line; "-": nothing fits */
	char option[ANSWER_MAX]; /* the fastest mixed plan; "": there is none */
	double option_gain;
	double memory;              /* needed by the plan, as a share of the device's */
	int departures;             /* from its framework's defaults */
	int levers;                 /* that are worth a line */
	double free_gain;           /* with all levers; 0: no more than the best single one */
	double step_s, token_s;     /* of the plan; 0: nothing fits */
	double gap, seconds, yards; /* yards: s of the fixed loop */
	long long simulated, dropped;
	double resident; /* bytes, at the peak */
};

/* The questions, one of the lists of questions.h. */
static const struct asked *list;
static int n_list;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(bool ok, const char *message)
{
	if (ok)
		return;
	fprintf(stderr, "bench_questions: %s\n", message);
	exit(EXIT_CODE_INTERNAL);
}

/* --- a question ------------------------------------------------------------------------------- */

static void set_options(const char *options, struct question *question, struct arena *arena)
{
	struct error error = {0};
	char *rest = arena_strdup(arena, options), *save = NULL;
	for (char *word = strtok_r(rest, " ", &save); word != NULL;
		word = strtok_r(NULL, " ", &save)) {
		char *value = strchr(word, '=');
		*value++ = '\0';
		check(question_set_by_name(question, word, word, value, arena, &error),
			error.message);
	}
}

static void set_network(const struct asked *asked, struct topology *topology)
{
	if (asked->nics == 0)
		return;
	topology->network.nics_per_node = asked->nics;
	topology->network.nic_bandwidth = asked->gbit * 1e9 / 8;
}

static struct question make_question(const struct asked *asked, struct arena *arena)
{
	struct question question = {
		.mixes = true, .brief = true, .simplicity = 0.01}; /* as the command does */
	struct model *model;
	struct topology *topology;
	struct error error = {0};
	check(model_load_preset(arena, asked->model, &model, &error), error.message);
	check(topology_load_name(arena, asked->topology, &topology, &error), error.message);
	check(asked->devices == 0 || topology_use_devices(topology, asked->devices, &error),
		error.message);
	set_network(asked, topology);
	set_options(asked->options, &question, arena);
	if (question_gives(&question, KNOB_SEQ_LEN) &&
		question.asked.seq_len > model->architecture.context)
		model->architecture.context = question.asked.seq_len;
	question.model = model;
	question.topology = topology;
	return question;
}

/* Does a fixed amount of work: sums that depend on one another. */
static double yardstick(void)
{
	double start = now(), sum = 0;
	for (int i = 1; i <= 20000000; i++)
		sum = sum * 0.5 + (double)(i & 255);
	volatile double kept = sum;
	(void)kept;
	return now() - start;
}

static void ask(const struct asked *asked, struct figures *figures)
{
	struct arena arena = {0};
	struct error error = {0};
	struct answer answer;
	struct text text = {0};
	figures->yards = yardstick();
	struct question question = make_question(asked, &arena);
	double start = now();
	check(planner_plan(&question, &arena, &answer, &error), error.message);
	figures->seconds = now() - start;
	figures->simulated = answer.evaluated;
	figures->dropped = answer.pruned;
	figures->gap = answer.gap;
	strcpy(figures->answer, "-");
	if (answer.chosen == NULL)
		return;
	const struct plan *plan = &answer.chosen->plan;
	plan_summary(plan, &text);
	snprintf(figures->answer, sizeof(figures->answer), "%s", text_string(&text));
	figures->step_s = answer.chosen->prediction.step_time;
	figures->memory = (double)prediction_needed_bytes(&answer.chosen->prediction) /
			  (double)answer.chosen->prediction.memory_limit_bytes;
	figures->departures = answer.departures;
	figures->levers = answer.n_levers;
	figures->free_gain = answer.free != NULL ? answer.free->gain : 0;
	figures->token_s = figures->step_s / (double)plan->global_batch / (double)plan->seq_len;
	if (answer.n_options == 0)
		return;
	struct text option = {0};
	plan_summary(&answer.options[0].plan, &option);
	snprintf(figures->option, sizeof(figures->option), "%s", text_string(&option));
	figures->option_gain = answer.options[0].gain;
}

/* Answers a question in a process of its own. */
static struct figures ask_apart(const struct asked *asked)
{
	struct figures figures = {.asked = true};
	struct rusage usage;
	int ends[2], status;
	check(pipe(ends) == 0, "no pipe");
	pid_t child = fork();
	check(child >= 0, "no process");
	if (child == 0) {
		ask(asked, &figures);
		check(write(ends[1], &figures, sizeof(figures)) == (ssize_t)sizeof(figures),
			"no pipe");
		_exit(0);
	}
	close(ends[1]);
	bool whole = read(ends[0], &figures, sizeof(figures)) == (ssize_t)sizeof(figures);
	close(ends[0]);
	check(wait4(child, &status, 0, &usage) == child && whole && status == 0,
		"a question failed");
	figures.resident = (double)usage.ru_maxrss * 1024;
	return figures;
}

/* --- every plan of the space ---------------------------------------------------------------------
 */

/* The fastest plan with room, or without, of those that the search has ranked. */
static int64_t fastest_found(const struct ranking *ranking, bool room)
{
	int64_t least = INT64_MAX;
	for (int i = 0; i < ranking->n; i++)
		if (ranking->entries[i].tight != room)
			least = min_i64(least, ranking->entries[i].costs.of[COST_TIME]);
	return least;
}

/* Compares the fastest plan that fits with room, or without if none has any: by the search, and by
 * simulating all. */
static void try_all(int number, const struct asked *asked)
{
	struct arena arena = {0};
	struct error error = {0};
	struct search search;
	struct question question = make_question(asked, &arena);
	int64_t best[2] = {INT64_MAX, INT64_MAX}, fitting = 0; /* without room, with room */
	double start = now();
	check(search_run(&question, &arena, &search, &error), error.message);
	double seconds = now() - start;
	start = now();
	for (int i = 0; i < search.space.n; i++) {
		const struct plan *plan = &search.space.plans[i];
		struct prediction p;
		if (!evaluator_run(&search.evaluator, plan, &p, &error) || p.fits == FITS_NO)
			continue;
		int64_t *mine = &best[has_room(search.question, plan, &p)];
		fitting++;
		*mine = min_i64(*mine, costs_of(search.question, plan, &p).of[COST_TIME]);
	}
	bool room = best[1] < INT64_MAX;
	bool same = fastest_found(&search.ranking, room) == best[room];
	printf("%2d %-14s %6d plans, %6lld fit; search %.3f s, all %.3f s; %s\n", number,
		asked->model, search.space.n, (long long)fitting, seconds, now() - start,
		same ? "the same optimum" : "ANOTHER OPTIMUM");
	fflush(stdout);
	search_finish(&search);
	arena_finish(&arena);
}

/* --- the table -------------------------------------------------------------------------------- */

/* Example: "8xdgx-a100-80gb, 1 x 10 Gbit/s, 2 devices, seq_len=4096". */
static const char *where(const struct asked *asked, struct arena *arena)
{
	const char *text = asked->topology;
	if (asked->nics > 0)
		text = arena_printf(arena, "%s, %d x %g Gbit/s", text, asked->nics, asked->gbit);
	if (asked->devices > 0)
		text = arena_printf(arena, "%s, %lld devices", text, (long long)asked->devices);
	return asked->options[0] != '\0' ? arena_printf(arena, "%s, %s", text, asked->options)
					 : text;
}

static void print_row(int number, const struct asked *asked, const struct figures *f)
{
	struct arena arena = {0};
	printf("%2d %-14s %-60s %8.3f %6.1f %7lld %6.2f %5.0f  %9.4g s  %s\n", number, asked->model,
		where(asked, &arena), f->seconds, f->seconds / f->yards, f->simulated, 100 * f->gap,
		f->resident * 0x1p-20, f->step_s, f->answer);
	fflush(stdout);
	arena_finish(&arena);
}

static int ascending(const void *left, const void *right)
{
	const double *a = left, *b = right;
	return (*a > *b) - (*a < *b);
}

static void print_spread(const char *name, double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), ascending);
	if (n > 0)
		printf("%-28s median %9.3f   worst %9.3f\n", name, values[n / 2], values[n - 1]);
}

static void print_summary(const struct figures *figures, int n_figures)
{
	static const char *const names[] = {
		"CPU, s", "CPU, fixed loops", "simulated", "gap, %", "resident memory, MiB"};
	double *values = malloc((size_t)n_figures * sizeof(*values));
	int large = 0, fitting = 0;
	check(values != NULL, "no memory");
	printf("\n");
	for (int k = 0; k < COUNT_OF(names); k++) {
		int n = 0;
		for (int i = 0; i < n_figures; i++) {
			const struct figures *f = &figures[i];
			const double of[] = {f->seconds, f->seconds / f->yards,
				(double)f->simulated, 100 * f->gap, f->resident * 0x1p-20};
			if (f->asked)
				values[n++] = of[k];
		}
		print_spread(names[k], values, n);
	}
	for (int i = 0; i < n_figures; i++) {
		large += figures[i].gap > 0.03;
		fitting += figures[i].step_s > 0;
	}
	printf("%d of %d questions have an answer, %d of them with a gap above 3 %%\n", fitting,
		n_figures, large);
	free(values);
}

/* --- files ------------------------------------------------------------------------------------ */

static const char header[] =
	"question,model,where,answer,step_s,token_s,gap,simulated,dropped,cpu_s,loop_s,"
	"resident_bytes,option,option_gain,memory_share,departures,levers,levers_gain\n";

static void write_csv(const char *path, const struct figures *figures)
{
	struct arena arena = {0};
	FILE *file = fopen(path, "w");
	check(file != NULL, "the file cannot be written");
	fputs(header, file);
	for (int i = 0; i < n_list; i++) {
		const struct asked *asked = &list[i];
		const struct figures *f = &figures[i];
		if (f->asked)
			fprintf(file,
				"%d,%s,\"%s\",\"%s\",%.9g,%.9g,%.5f,%lld,%lld,%.3f,%.3f,%.0f,"
				"\"%s\",%.5f,%.4f,%d,%d,%.5f\n",
				i + 1, asked->model, where(asked, &arena), f->answer, f->step_s,
				f->token_s, f->gap, f->simulated, f->dropped, f->seconds, f->yards,
				f->resident, f->option, f->option_gain, f->memory, f->departures,
				f->levers, f->free_gain);
	}
	check(fclose(file) == 0, "the file cannot be written");
	arena_finish(&arena);
}

/* The field at `*at`, without its quotes. */
static const char *next_field(char **at)
{
	char *start = *at, *end;
	bool quoted = *start == '"';
	end = strpbrk(start + quoted, quoted ? "\"" : ",\n");
	check(end != NULL, "a row ends early");
	*at = end + 1 + (quoted && end[1] != '\0');
	*end = '\0';
	return start + quoted;
}

/* Compares answers that differ. Returns the number that are slower per token. */
static int compare_row(char *line, const struct figures *figures, int *changed)
{
	char *at = line;
	int number = atoi(next_field(&at));
	check(number >= 1 && number <= n_list, "a row of no question");
	const struct figures *f = &figures[number - 1];
	next_field(&at);
	next_field(&at);
	const char *answer = next_field(&at);
	double step_s = atof(next_field(&at)), token_s = atof(next_field(&at));
	double gap = atof(next_field(&at));
	bool same = strcmp(answer, f->answer) == 0 &&
		    (token_s == 0 || f->token_s / token_s - 1 < 1e-8) &&
		    (token_s == 0 || 1 - f->token_s / token_s < 1e-8);
	if (!f->asked || same)
		return 0;
	double change = token_s > 0 ? f->token_s / token_s - 1 : 0;
	printf("%2d before %9.6g s  gap %5.2f %%  %s\n   now    %9.6g s  gap %5.2f %%  %s   a "
	       "token: "
	       "%+.3f %%\n",
		number, step_s, 100 * gap, answer, f->step_s, 100 * f->gap, f->answer,
		100 * change);
	++*changed;
	return change > 1e-8 || (token_s > 0 && f->token_s <= 0);
}

static void compare(const char *path, const struct figures *figures)
{
	char line[LINE_MAX];
	int changed = 0, slower = 0;
	FILE *file = fopen(path, "r");
	check(file != NULL && fgets(line, sizeof(line), file) != NULL, "no file to compare with");
	printf("\n");
	while (fgets(line, sizeof(line), file) != NULL)
		slower += compare_row(line, figures, &changed);
	printf("%d answers differ from %s, %d of them slower\n", changed, path, slower);
	fclose(file);
}

/* --- the whole -------------------------------------------------------------------------------- */

static const char *option(int argc, char **argv, const char *name)
{
	for (int i = 1; i + 1 < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return argv[i + 1];
	return NULL;
}

static bool is_listed(const char *only, int number)
{
	char *end;
	if (only == NULL)
		return true;
	for (; *only != '\0'; only = *end == ',' ? end + 1 : end) {
		long one = strtol(only, &end, 10);
		check(end != only, "--only takes numbers with commas");
		if (one == number)
			return true;
	}
	return false;
}

static bool given(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	const char *only = option(argc, argv, "--only"), *csv = option(argc, argv, "--csv"),
		   *other = option(argc, argv, "--compare");
	bool axes = given(argc, argv, "--axes");
	list = axes ? asked_of_axes : asked_questions;
	n_list = axes ? n_asked_of_axes : n_asked_questions;
	struct figures *figures = calloc((size_t)n_list, sizeof(*figures));
	check(figures != NULL, "no memory");
	for (int i = 0; i < n_list && given(argc, argv, "--exhaustive"); i++)
		if (is_listed(only, i + 1))
			try_all(i + 1, &list[i]);
	if (given(argc, argv, "--exhaustive"))
		return 0;
	printf("%2s %-14s %-60s %8s %6s %7s %6s %5s  %11s  %s\n", "", "model", "where", "CPU s",
		"loops", "plans", "gap %", "MiB", "step", "answer");
	for (int i = 0; i < n_list; i++) {
		if (!is_listed(only, i + 1))
			continue;
		figures[i] = ask_apart(&list[i]);
		print_row(i + 1, &list[i], &figures[i]);
	}
	print_summary(figures, n_list);
	if (csv != NULL)
		write_csv(csv, figures);
	if (other != NULL)
		compare(other, figures);
	free(figures);
	return 0;
}
