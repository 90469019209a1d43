/* The own driver: damages seeds for so many inputs or seconds, and prints a line a target.
 *
 *     fuzzer [--runs N | --seconds S] [--seed N] [TARGET...]
 *     fuzzer --input FILE TARGET            repeats one input
 *     fuzzer --write-seeds FOLDER TARGET    what it starts from, as files
 *     fuzzer --planted                      every planted defect must be found
 *     fuzzer --list */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

enum { LONGER = 4096, SEEDS_KEPT = 400, FINDINGS_SHOWN = 5, HANG_S = 20 };

struct run {
	const char *root, *input, *folder;
	uint64_t runs, seed;
	double seconds;
};

static struct text current; /* for whoever dies of it */
static const char *current_name = "";
static volatile sig_atomic_t n_answers;

/* Named after what it holds, so that findings do not hide one another. */
static void keep_input(const char *why)
{
	struct digest digest = digest_of(text_string(&current), current.length);
	char path[128];

	snprintf(path, sizeof(path), "finding-%s-%.8s", current_name, digest.hex);
	FILE *file = fopen(path, "wb");
	if (file != NULL) {
		fwrite(current.data, 1, current.length, file);
		fclose(file);
	}
	printf("%s: %s; repeat: fuzzer --input %s %s\n", current_name, why, path, current_name);
	fflush(stdout);
}

static void on_death(int number)
{
	keep_input(number == SIGALRM ? "does not end" : "dies");
	signal(number, SIG_DFL);
	raise(number == SIGALRM ? SIGABRT : number);
}

/* Every HANG_S: no answer since the last time. */
static void on_alarm(int number)
{
	static sig_atomic_t n_before = -1;

	if (n_answers == n_before)
		on_death(number);
	n_before = n_answers;
}

/* The sanitizers end a process in their own way. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void on_report(void)
{
	keep_input("a sanitizer's report");
}

static void watch(void)
{
	static const int deaths[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	static const struct itimerval often = {{HANG_S, 0}, {HANG_S, 0}};
	int n = COUNT_OF(deaths);

	if (__sanitizer_set_death_callback != NULL) {
		__sanitizer_set_death_callback(on_report);
		n = 1;
	}
	for (int i = 0; i < n; i++)
		signal(deaths[i], on_death);
	signal(SIGALRM, on_alarm);
	setitimer(ITIMER_REAL, &often, NULL);
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Accepted inputs lead further: some stand for a seed of their own. */
static void keep_seed(struct seeds *seeds, uint64_t *state, const struct text *input)
{
	if (seeds->n < SEEDS_KEPT && draw(state, 50) == 0)
		seeds_add(seeds, input->data, input->length);
}

/* How many inputs the judge found something wrong with. */
static int fuzz(const struct target *target, const struct run *run, const struct limits *limits)
{
	struct seeds seeds = {.root = run->root};
	uint64_t state = run->seed * 0x9e3779b97f4a7c15 + 1, n = 0, n_accepted = 0;
	int n_findings = 0;
	double begin = now_s();
	bool accepted;

	current_name = target->name;
	if (!target_seeds(target, &seeds))
		return 1;
	for (int i = 0; i < seeds.n && limits == &usual_limits; i++) {
		const char *wrong =
			judge(target, seeds.of[i].text, seeds.of[i].length, limits, &accepted);
		if (wrong != NULL || !accepted) {
			printf("%s: seed %d: %s\n", target->name, i,
				wrong != NULL ? wrong : "refused");
			n_findings++;
		}
	}
	for (; run->seconds > 0 ? (n & 63) != 0 || now_s() - begin < run->seconds : n < run->runs;
		n++) {
		mutate(target, &seeds, &state, LONGER, &current);
		const char *wrong = judge(target, current.data, current.length, limits, &accepted);
		n_answers = (n_answers + 1) & 0xffffff;
		n_accepted += accepted;
		if (wrong != NULL && n_findings++ < FINDINGS_SHOWN && limits == &usual_limits)
			keep_input(wrong);
		else if (accepted)
			keep_seed(&seeds, &state, &current);
	}
	printf("%-22s %9llu inputs %9.0f inputs/s %5.1f %% accepted %4d findings\n", target->name,
		(unsigned long long)n, (double)n / (now_s() - begin),
		100 * (double)n_accepted / (double)(n > 0 ? n : 1), n_findings);
	fflush(stdout);
	seeds_finish(&seeds);
	return n_findings;
}

static int find_planted(const struct run *run)
{
	const struct limits limits = {.seconds = 0.05, .kib = usual_limits.kib};
	int missed = 0;

	for (int i = 0; i < n_planted_targets; i++) {
		struct run one = *run;
		one.runs = 100;
		missed += fuzz(&planted_targets[i], &one, &limits) == 0;
	}
	printf("%d of %d planted defects found\n", n_planted_targets - missed, n_planted_targets);
	return missed;
}

static bool read_input(const char *path)
{
	FILE *file = fopen(path, "rb");
	int c;

	if (file == NULL)
		return false;
	text_reserve(&current, 1);
	while ((c = getc(file)) != EOF)
		text_add_char(&current, (char)c);
	fclose(file);
	return true;
}

static int repeat(const struct target *target, const char *path)
{
	struct error error = {0};
	struct arena arena = {0};
	struct text printed = {0};
	bool accepted;

	current_name = target->name;
	if (!read_input(path))
		return 2;
	bool ok = target->read(
		target, &arena, text_string(&current), current.length, &printed, &error);
	printf("%s\n%s%s", ok ? "accepted" : "refused", text_string(&printed), error.message);
	const char *wrong =
		judge(target, text_string(&current), current.length, &usual_limits, &accepted);
	printf("\n%s: code %d: %s\n", target->name, error.code,
		wrong != NULL ? wrong : "as it should be");
	text_finish(&printed);
	arena_finish(&arena);
	return wrong != NULL;
}

/* Files for a fuzzer that reads folders. */
static int write_seeds(const struct target *target, const char *root, const char *folder)
{
	struct seeds seeds = {.root = root};
	bool ok = target_seeds(target, &seeds);

	for (int i = 0; ok && i < seeds.n; i++) {
		const char *path = arena_printf(&seeds.arena, "%s/seed-%d", folder, i);
		FILE *file = fopen(path, "wb");
		ok = file != NULL &&
		     fwrite(seeds.of[i].text, 1, seeds.of[i].length, file) == seeds.of[i].length;
		if (file != NULL)
			fclose(file);
	}
	seeds_finish(&seeds);
	return !ok;
}

static int list(void)
{
	for (int i = 0; i < n_targets; i++)
		puts(targets[i].name);
	return 0;
}

static bool take_option(struct run *run, const char *option, const char *value)
{
	if (strcmp(option, "--runs") == 0)
		run->runs = strtoull(value, NULL, 10);
	else if (strcmp(option, "--seconds") == 0)
		run->seconds = strtod(value, NULL);
	else if (strcmp(option, "--seed") == 0)
		run->seed = strtoull(value, NULL, 10);
	else if (strcmp(option, "--input") == 0)
		run->input = value;
	else if (strcmp(option, "--write-seeds") == 0)
		run->folder = value;
	else
		return false;
	return true;
}

static int run_target(const struct target *target, const struct run *run)
{
	if (run->input != NULL)
		return repeat(target, run->input);
	if (run->folder != NULL)
		return write_seeds(target, run->root, run->folder);
	return fuzz(target, run, &usual_limits);
}

int main(int argc, char **argv)
{
	struct run run = {.root = FUZZ_ROOT, .runs = 1000, .seed = 1};
	int i = 1, findings = 0;

	if (argc == 2 && strcmp(argv[1], "--list") == 0)
		return list();
	if (argc == 2 && strcmp(argv[1], "--planted") == 0)
		return find_planted(&run) > 0;
	for (; i + 1 < argc && take_option(&run, argv[i], argv[i + 1]); i += 2)
		continue;
	for (int j = i; j < argc; j++) {
		if (target_find(argv[j]) == NULL) {
			fprintf(stderr,
				"%s: no option with a value and no target, expected one of "
				"--list\n",
				argv[j]);
			return EXIT_CODE_USAGE;
		}
	}
	watch();
	for (int j = i; j < argc; j++)
		findings += run_target(target_find(argv[j]), &run);
	for (int j = 0; i == argc && j < n_targets; j++)
		findings += run_target(&targets[j], &run);
	text_finish(&current);
	return findings > 0;
}
