/* Checkpoints that are damaged, of another step or of another run are refused before anything of
 * them is used, and the newest whole one takes their place; one job writes to a folder.
 * With "faults": ten thousand damages of each kind, or FAULTS_PERCENT of that. */
#include "checkpoint_runs.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/checkpoints/seal.h"

/* There are two runs with three checkpoints each; the first one's newest is damaged. */
enum { RUNS = 2, SAVED = STEPS / EVERY, FILES = RANKS + 1 /* the last one is the manifest */ };

static bool all;
static char folders[RUNS][64];
static struct model *model;

struct file {
	char *data;
	size_t length;
};
static struct file files[RUNS][SAVED][FILES];

static void path_of(int run, int saved, int file, char path[128])
{
	int n = snprintf(path, 128, "%s/step-%08d", folders[run], (saved + 1) * EVERY);

	if (file < RANKS)
		snprintf(path + n, 128 - (size_t)n, "/rank-%05d.bin", file);
	else if (file == RANKS)
		snprintf(path + n, 128 - (size_t)n, "/manifest.json");
}

static void write_file(const char *path, const struct file *file)
{
	FILE *out = fopen(path, "wbe");

	assert_non_null(out);
	assert_int_equal(fwrite(file->data, 1, file->length, out), file->length);
	fclose(out);
}

static void restore(void)
{
	char path[128];

	for (int f = 0; f < FILES; f++) {
		path_of(0, SAVED - 1, f, path);
		write_file(path, &files[0][SAVED - 1][f]);
	}
}

static int make_runs(void **state)
{
	static struct arena arena;
	struct checkpoint_info info;
	struct error error = {0};
	char path[128];

	(void)state;
	for (int r = 0; r < RUNS; r++) {
		make_folder(folders[r]);
		struct executor_job job = saving_job(folders[r], false);
		job.training.seed = r;
		train_whole(&cases[0], STEPS, job);
		for (int s = 0; s < SAVED; s++) {
			for (int f = 0; f < FILES; f++) {
				path_of(r, s, f, path);
				assert_true(store_read(&arena, path, &files[r][s][f].data,
					&files[r][s][f].length, &error));
			}
		}
	}
	assert_true(checkpoint_find(&arena, folders[0], NULL, CHECKPOINT_VERIFY, &info, &error));
	assert_string_equal(info.notes, "");
	model = info.model;
	return 0;
}

static int remove_runs(void **state)
{
	(void)state;
	for (int r = 0; r < RUNS; r++)
		remove_folder(folders[r]);
	return 0;
}

/* --- every bit of a manifest --- */

static bool parses_in(const char *folder, const char *text, size_t length, const struct model *of)
{
	struct arena arena = {0};
	struct manifest manifest;
	struct error error = {0};
	bool ok = manifest_parse(&arena, folder, text, length, of, &manifest, &error);

	arena_finish(&arena);
	if (!ok)
		assert_int_equal(error.code, EXIT_CODE_INPUT);
	return ok;
}

static bool parses(const char *text, size_t length)
{
	char folder[128];

	path_of(0, SAVED - 1, FILES, folder);
	return parses_in(folder, text, length, model);
}

static void no_bit_of_a_manifest_can_change(void **state)
{
	struct file file = files[0][SAVED - 1][RANKS];
	int64_t bits = 0, digits = 0;

	(void)state;
	assert_true(parses(file.data, file.length));
	for (size_t i = 0; i < file.length; i++) {
		char right = file.data[i];
		for (int bit = 0; bit < 8; bit++, bits++) {
			file.data[i] = (char)(right ^ (1 << bit));
			if (parses(file.data, file.length))
				fail_msg("bit %d of byte %zu is not noticed", bit, i);
		}
		for (char digit = '0'; right >= '0' && right <= '9' && digit <= '9'; digit++) {
			file.data[i] = digit;
			digits += digit != right;
			if (digit != right && parses(file.data, file.length))
				fail_msg("digit %c for %c at byte %zu is not noticed", digit, right,
					i);
		}
		file.data[i] = right;
	}
	assert_true(parses(file.data, file.length));
	print_message(
		"%lld bits and %lld digits of a manifest\n", (long long)bits, (long long)digits);
}

/* As 0.1.0 wrote it: neither run nor checksums of its own and of ranges. */
static void unseal(const struct file *file, struct text *text)
{
	static const char *const gone[] = {
		"\"run\": ", "\"range_bytes\": ", "\"ranges\": ", "\"xxh3_128\": "};
	char *copy = strdup(file->data), *save;

	for (char *line = strtok_r(copy, "\n", &save); line != NULL;
		line = strtok_r(NULL, "\n", &save)) {
		bool of_file = strncmp(line, "      ", 6) == 0, leave = false;
		for (int i = 0; i < COUNT_OF(gone); i++)
			leave |= strstr(line, gone[i]) != NULL && !(i == 3 && of_file);
		if (!leave)
			text_printf(text, "%s\n", line);
	}
	free(copy);
	char *version = strstr(text->data, "checkpoint/2");
	assert_non_null(version);
	version[strlen("checkpoint/")] = '1';
	/* Commas before what is gone. */
	for (char *c = text->data; (c = strchr(c, ',')) != NULL; c++) {
		const char *next = c + 1 + strspn(c + 1, " \n");
		if (*next == '}' || *next == ']')
			*c = ' ';
	}
}

/* The control of the test above: without a checksum a digit does change what is trained. */
static void what_0_1_0_wrote_is_read_with_a_warning(void **state)
{
	struct text text = {0};
	struct arena arena = {0};
	struct checkpoint_info info;
	struct error error = {0};
	char path[128], folder[128];

	(void)state;
	unseal(&files[0][SAVED - 1][RANKS], &text);
	path_of(0, SAVED - 1, RANKS, path);
	path_of(0, SAVED - 1, FILES, folder);
	write_file(path, &(struct file){text.data, text.length});
	if (!checkpoint_find(&arena, folder, NULL, CHECKPOINT_VERIFY, &info, &error))
		fail_msg("%s", error.message);
	assert_non_null(strstr(info.notes, "manifest.json: written by 0.1.0"));
	char *rate = strstr(text.data, "\"learning_rate\": 0.");
	assert_non_null(rate);
	rate[strlen("\"learning_rate\": 0.")] = '8';
	assert_true(parses(text.data, text.length));
	restore();
	text_finish(&text);
	arena_finish(&arena);
}

/* Parts that the model is not cut into, or that there are no pieces of. */
static void pieces_are_those_of_the_tensor_ranks(void **state)
{
	struct text text = {0};

	(void)state;
	unseal(&files[0][SAVED - 1][RANKS], &text);
	const char *rest = strstr(text.data, "  \"arrays\": ");
	assert_non_null(rest);
	for (int tensor = 1; tensor <= 3; tensor++) {
		struct text other = {0};

		text_add_bytes(&other, text.data, (size_t)(rest - text.data));
		text_printf(&other, "  \"tensor\": %d,\n%s", tensor, rest);
		assert_int_equal(parses(other.data, other.length), tensor == 1);
		text_finish(&other);
	}
	text_finish(&text);
}

/* A manifest with one value changed, and with a checksum that fits. */
static void reseal(const char *key, const char *value, struct text *text)
{
	const struct file *file = &files[0][SAVED - 1][RANKS];
	const char *end = strstr(file->data, ",\n  \"xxh3_128\": \"");
	const char *at = strstr(file->data, key);

	assert_non_null(at);
	assert_non_null(end);
	at += strlen(key);
	const char *rest = at + strcspn(at, ",\n");
	text_add_bytes(text, file->data, (size_t)(at - file->data));
	text_add(text, value);
	text_add_bytes(text, rest, (size_t)(end - rest));
	text_add(text, "\n}\n");
	seal_add(text);
}

static bool resealed_parses(const char *key, const char *value)
{
	struct text text = {0};

	reseal(key, value, &text);
	bool ok = parses(text.data, text.length);
	text_finish(&text);
	return ok;
}

/* In a folder without run.json, which would say that it is of another run. */
static bool run_is_taken(const char *run)
{
	struct text text = {0};
	char folder[64];

	snprintf(folder, sizeof(folder), "nowhere/step-%08d", SAVED * EVERY);
	reseal("\"run\": ", run, &text);
	bool ok = parses_in(folder, text.data, text.length, NULL);
	text_finish(&text);
	return ok;
}

/* The manifest may come from anywhere, so a right checksum does not make its values right. */
static void values_that_no_run_writes_are_refused(void **state)
{
	static const char arrays[] = "\"arrays\": ", bytes[] = "\"range_bytes\": ",
			  ranges[] = "\"ranges\": ";

	(void)state;
	assert_true(resealed_parses(arrays, "3"));
	assert_false(resealed_parses(arrays, "2"));
	assert_false(resealed_parses(arrays, "2147483647"));
	assert_true(resealed_parses(bytes, "1048576"));
	assert_false(resealed_parses(bytes, "1"));
	assert_false(resealed_parses(bytes, "0"));
	assert_false(resealed_parses(ranges, "0"));
	assert_false(resealed_parses(ranges, "9223372036854775807"));
	assert_true(run_is_taken("\"00112233445566778899aabbccddeeff\""));
	assert_false(run_is_taken("\"00112233445566778899aabbccddeef\""));
	assert_false(run_is_taken("\"00112233445566778899aabbccddeeff0\""));
}

/* --- damage of each kind --- */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return n > 0 ? random_state % n : 0;
}

/* What becomes of one file; false: nothing of it would change. */
typedef bool damage_fn(int file, struct file *damaged);

static bool flip(int file, struct file *damaged)
{
	(void)file;
	damaged->data[random_below(damaged->length)] ^= (char)(1 << random_below(8));
	return true;
}

static bool burst(int file, struct file *damaged)
{
	size_t at = random_below(damaged->length - 64);

	(void)file;
	for (int i = 0; i < 64; i++)
		damaged->data[at + (size_t)i] = (char)random_below(256);
	return true;
}

static bool truncated(int file, struct file *damaged)
{
	(void)file;
	damaged->length = random_below(damaged->length);
	return true;
}

static bool zero_page(int file, struct file *damaged)
{
	size_t at = random_below(damaged->length / 4096) * 4096;

	(void)file;
	memset(damaged->data + at, 0, 4096);
	return true;
}

static bool swapped_sectors(int file, struct file *damaged)
{
	size_t a = random_below(damaged->length / 512) * 512;
	size_t b = random_below(damaged->length / 512) * 512;
	char sector[512];

	(void)file;
	memcpy(sector, damaged->data + a, sizeof(sector));
	memmove(damaged->data + a, damaged->data + b, sizeof(sector));
	memcpy(damaged->data + b, sector, sizeof(sector));
	return true;
}

static void become(struct file *damaged, const struct file *other)
{
	damaged->data = realloc(damaged->data, other->length + 1);
	assert_non_null(damaged->data);
	memcpy(damaged->data, other->data, other->length);
	damaged->length = other->length;
}

static bool of_another_rank(int file, struct file *damaged)
{
	become(damaged, &files[0][SAVED - 1][(file + 1 + (int)random_below(FILES - 1)) % FILES]);
	return true;
}

static bool of_another_step(int file, struct file *damaged)
{
	become(damaged, &files[0][random_below(SAVED - 1)][file]);
	return true;
}

static bool of_another_run(int file, struct file *damaged)
{
	become(damaged, &files[1][random_below(SAVED)][file]);
	return true;
}

static bool missing(int file, struct file *damaged)
{
	(void)file;
	free(damaged->data);
	*damaged = (struct file){0};
	return true;
}

/* Nothing happens, or a file is added: both must be accepted. */
static bool harmless(int file, struct file *damaged)
{
	(void)file, (void)damaged;
	return false;
}

static const struct kind {
	const char *name;
	damage_fn *damage;
	bool whole; /* all files of the checkpoint at once, by the same random numbers */
} kinds[] = {
	{"flipped bit", flip, false},
	{"64 bytes overwritten", burst, false},
	{"truncated", truncated, false},
	{"zeroed page", zero_page, false},
	{"swapped sectors", swapped_sectors, false},
	{"file of another rank", of_another_rank, false},
	{"file of another step", of_another_step, false},
	{"file of another run", of_another_run, false},
	{"missing file", missing, false},
	{"checkpoint of another step", of_another_step, true},
	{"checkpoint of another run", of_another_run, true},
	{"control: nothing", harmless, false},
};

/* Damages the file; returns whether anything was changed. */
static bool damage_file(const struct kind *kind, int file)
{
	const struct file *right = &files[0][SAVED - 1][file];
	struct file damaged = {malloc(right->length + 1), right->length};
	char path[128];

	assert_non_null(damaged.data);
	memcpy(damaged.data, right->data, right->length);
	bool changed = kind->damage(file, &damaged) &&
		       (damaged.data == NULL || damaged.length != right->length ||
			       memcmp(damaged.data, right->data, right->length) != 0);
	path_of(0, SAVED - 1, file, path);
	if (damaged.data == NULL)
		assert_int_equal(unlink(path), 0);
	else
		write_file(path, &damaged);
	free(damaged.data);
	return changed;
}

/* The checkpoint by its name is refused; its folder gives the one before it, with a line. */
static bool is_noticed(const struct kind *kind)
{
	struct arena arena = {0};
	struct checkpoint_info info;
	struct error error = {0}, none = {0};
	char folder[128];

	path_of(0, SAVED - 1, FILES, folder);
	bool refused = !checkpoint_find(&arena, folder, model, CHECKPOINT_VERIFY, &info, &error);
	if (refused && (error.code != EXIT_CODE_INPUT || strchr(error.message, '\n') != NULL))
		fail_msg("%s: code %d: %s", kind->name, error.code, error.message);
	if (refused && random_below(8) == 0) {
		assert_true(checkpoint_find(
			&arena, folders[0], model, CHECKPOINT_VERIFY, &info, &none));
		assert_int_equal(info.step, STEPS - EVERY);
		assert_non_null(strstr(info.notes, "; going back to step 4\n"));
	}
	arena_finish(&arena);
	return refused;
}

static void damage_of_every_kind_is_noticed(void **state)
{
	int64_t count = all ? tries(10000) : 25;

	(void)state;
	for (int k = 0; k < COUNT_OF(kinds); k++) {
		const struct kind *kind = &kinds[k];
		int64_t damages = 0, noticed = 0;
		for (int64_t i = 0; i < count; i++) {
			uint64_t same = random_state;
			bool changed = false;
			for (int f = 0; f < FILES && kind->whole; f++) {
				random_state = same;
				changed |= damage_file(kind, f);
			}
			if (!kind->whole)
				changed = damage_file(kind, (int)random_below(FILES));
			damages += changed;
			bool seen = is_noticed(kind);
			noticed += seen;
			if (seen != changed)
				fail_msg("%s %lld: changed %d, noticed %d", kind->name,
					(long long)i, changed, seen);
			restore();
		}
		print_message("%-28s %6lld tried, %6lld damages, %6lld noticed\n", kind->name,
			(long long)count, (long long)damages, (long long)noticed);
	}
}

/* --- what training does about it --- */

static void keep_note(const char *line, void *data)
{
	text_printf(data, "%s\n", line);
}

/* The ranks find damage inside a file, agree and go back a step; the damaged one is set aside. */
static void training_goes_on_from_the_newest_whole_one(void **state)
{
	struct executor_job job = saving_job(folders[0], false);
	struct text notes = {0};
	struct error error;
	char name[128];

	(void)state;
	struct digest whole = train_whole(&cases[0], STEPS + EVERY, run_job(STEPS));
	assert_true(damage_file(&(struct kind){"", flip, false}, 2));
	job.note = keep_note;
	job.report_data = &notes;
	path_of(0, SAVED - 1, FILES, name);
	job.resume = name;
	train(&cases[0], STEPS + EVERY, job, &error);
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	assert_non_null(strstr(error.message, "rank-00002.bin: damaged: bytes 0 to "));
	assert_string_equal(text_string(&notes), "");
	job.resume = folders[0];
	struct digest digest = train_whole(&cases[0], STEPS + EVERY, job);
	assert_string_equal(digest.hex, whole.hex);
	assert_non_null(strstr(text_string(&notes), "rank-00002.bin: damaged: bytes 0 to "));
	assert_int_equal(newest(folders[0]), STEPS + EVERY);
	assert_int_equal(count_names(folders[0], "step-00000006.damaged"), 1);
	restore();
	text_finish(&notes);
}

/* --- one job --- */

static void one_job_owns_a_folder(void **state)
{
	char folder[64], message[128];
	struct error error;
	int ready[2], fd;

	(void)state;
	make_folder(folder);
	assert_int_equal(pipe(ready), 0);
	pid_t other = fork();
	if (other == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		bool ok = run_folder_lock(folder, &fd, NULL);
		(void)!write(ready[1], &ok, 1);
		pause();
		_exit(0);
	}
	bool locked = false;
	assert_int_equal(read(ready[0], &locked, 1), 1);
	assert_true(locked);
	struct executor_job job = saving_job(folder, false);
	train(&cases[0], EVERY, job, &error);
	assert_int_equal(error.code, EXIT_CODE_ENVIRONMENT);
	snprintf(message, sizeof(message), "%s: process %d on ", folder, (int)other);
	assert_non_null(strstr(error.message, message));
	assert_int_equal(newest(folder), 0);
	/* It dies with its job. */
	assert_int_equal(kill(other, SIGKILL), 0);
	assert_int_equal(waitpid(other, NULL, 0), other);
	train_whole(&cases[0], EVERY, job);
	assert_int_equal(newest(folder), EVERY);
	/* Nor is it mixed with a run that comes from elsewhere. */
	char from[128];
	path_of(1, SAVED - 1, FILES, from);
	job.resume = from;
	train(&cases[0], STEPS + EVERY, job, &error);
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(error.message, "holds checkpoints of another run"));
	close(ready[0]);
	close(ready[1]);
	remove_folder(folder);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_bit_of_a_manifest_can_change),
		cmocka_unit_test(pieces_are_those_of_the_tensor_ranks),
		cmocka_unit_test(values_that_no_run_writes_are_refused),
		cmocka_unit_test(what_0_1_0_wrote_is_read_with_a_warning),
		cmocka_unit_test(damage_of_every_kind_is_noticed),
		cmocka_unit_test(training_goes_on_from_the_newest_whole_one),
		cmocka_unit_test(one_job_owns_a_folder),
	};

	run_as_rank(argc, argv);
	all = argc > 1 && strcmp(argv[1], "faults") == 0;
	return cmocka_run_group_tests(tests, make_runs, remove_runs);
}
