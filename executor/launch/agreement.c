#include "executor/launch/agreement.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/compute/compute.h"

/* --- files --- */

/* Of a long file only so many pieces are looked at, the first and the last among them: reading all
 * of a corpus would delay the start by minutes. */
enum { PIECE = 16384, MOST_PIECES = 128 };

static void digest_file(int fd, int64_t bytes, char value[AGREEMENT_BYTES])
{
	int64_t pieces = ceil_div(bytes, PIECE), n = pieces < MOST_PIECES ? pieces : MOST_PIECES;
	struct hashing *hashing = hashing_begin();
	char piece[PIECE];

	for (int64_t i = 0; i < n; i++) {
		int64_t which = n > 1 ? i * (pieces - 1) / (n - 1) : 0;
		ssize_t got = pread(fd, piece, sizeof(piece), which * PIECE);

		hashing_add(hashing, piece, got > 0 ? (size_t)got : 0);
	}
	snprintf(value, AGREEMENT_BYTES, "%lld bytes %.16s", (long long)bytes,
		hashing_end(hashing).hex);
}

/* Opens the file that says most of a folder, which is that of a checkpoint or of weights. */
static int open_in(int folder)
{
	static const char *const names[] = {
		"manifest.json", "model.safetensors", "model.safetensors.index.json"};
	int fd = -1;

	for (int i = 0; i < COUNT_OF(names) && fd < 0; i++)
		fd = openat(folder, names[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd;
}

static void digest_path(const char *path, char value[AGREEMENT_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), inner;
	struct stat about = {0};

	if (fd >= 0 && fstat(fd, &about) == 0 && S_ISDIR(about.st_mode)) {
		inner = open_in(fd);
		close(fd);
		fd = inner;
	}
	if (fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
		digest_file(fd, about.st_size, value);
	else
		snprintf(value, AGREEMENT_BYTES, "unreadable");
	if (fd >= 0)
		close(fd);
}

/* --- settings --- */

struct setting {
	const char *name;
	void (*print)(const struct setting *setting, const struct segment *segment,
		char value[AGREEMENT_BYTES]);
	size_t offset; /* in struct job */
	enum job_text text;
	const char *const *names;
	const char *fix; /* NULL stands for the usual one */
};

static const void *field(const struct setting *setting, const struct segment *segment)
{
	return (const char *)&segment->header->job + setting->offset;
}

static void print_version(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	(void)setting, (void)segment;
	snprintf(value, AGREEMENT_BYTES, "%s", SHARDPLAN_VERSION);
}

static void print_integer(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const int64_t *number = field(setting, segment);

	snprintf(value, AGREEMENT_BYTES, "%lld", (long long)*number);
}

static void print_real(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const double *number = field(setting, segment);
	struct text text = {0};

	text_number(&text, *number);
	snprintf(value, AGREEMENT_BYTES, "%s", text_string(&text));
	text_finish(&text);
}

static void print_name(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const int *which = field(setting, segment);

	snprintf(value, AGREEMENT_BYTES, "%s", setting->names[*which]);
}

static void print_switch(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const bool *on = field(setting, segment);

	snprintf(value, AGREEMENT_BYTES, "%s", setting->names[*on]);
}

static void print_text(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const char *text = segment_text(segment, setting->text);

	snprintf(value, AGREEMENT_BYTES, "%s", text != NULL ? text : "not given");
}

static void print_given(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	bool given = segment_text(segment, setting->text) != NULL;

	snprintf(value, AGREEMENT_BYTES, "%s", given ? "given" : "not given");
}

static void print_digest(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const char *text = segment_text(segment, setting->text);

	print_given(setting, segment, value);
	if (text != NULL)
		snprintf(value, AGREEMENT_BYTES, "%s", digest_of(text, strlen(text)).hex);
}

static void print_file(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const char *path = segment_text(segment, setting->text);

	print_given(setting, segment, value);
	if (path != NULL)
		digest_path(path, value);
}

static void print_nccl(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	struct text text = {0};

	nccl_wish_print(field(setting, segment), &text);
	snprintf(value, AGREEMENT_BYTES, "%s", text.length > 0 ? text_string(&text) : "not given");
	text_finish(&text);
}

/* Prints the library too, because the tables of kernels differ by build. */
static void print_kernels(
	const struct setting *setting, const struct segment *segment, char value[AGREEMENT_BYTES])
{
	const struct kernels *kernels = executor_kernels(segment_text(segment, setting->text));

	snprintf(value, AGREEMENT_BYTES, "%s (%s)", kernels != NULL ? kernels->name : "unknown",
		kernels != NULL ? kernels->library : "");
}

#define IN_JOB(print, name, member)                                                                \
	{                                                                                          \
		name, print, offsetof(struct job, member), TEXT_COUNT, NULL, NULL                  \
	}
#define CHOICE(print, name, member, choices)                                                       \
	{                                                                                          \
		name, print, offsetof(struct job, member), TEXT_COUNT, choices, NULL               \
	}
#define OF_TEXT(print, name, text)                                                                 \
	{                                                                                          \
		name, print, 0, text, NULL, NULL                                                   \
	}

static const char *const commands[] = {[JOB_TRAIN] = "train", [JOB_COLLECTIVES] = "calibrate"};
static const char *const switches[] = {"off", "on"};
static const char *const roundings[] = {"plan or world", "run"};

/* The settings are compared in this order. What is read from the prediction (deadlines) or may
 * differ by machine (threads) is not here. */
static const struct setting settings[] = {
	{"version", print_version, 0, TEXT_COUNT, NULL, "install the same one on all nodes"},
	CHOICE(print_name, "the command", kind, commands),
	OF_TEXT(print_digest, "the plan (digest)", TEXT_PLAN),
	IN_JOB(print_integer, "--steps", training.steps),
	IN_JOB(print_integer, "--seed", training.seed),
	IN_JOB(print_real, "--lr", training.learning_rate),
	IN_JOB(print_integer, "--warmup", training.warmup),
	CHOICE(print_name, "--lr-schedule", training.lr_schedule, lr_schedule_names),
	IN_JOB(print_real, "--min-lr", training.min_lr),
	IN_JOB(print_real, "beta1", training.beta1),
	IN_JOB(print_real, "beta2", training.beta2),
	IN_JOB(print_real, "epsilon", training.epsilon),
	IN_JOB(print_real, "weight decay", training.weight_decay),
	OF_TEXT(print_text, "--device", TEXT_DEVICE),
	/* Kernels are chosen for each processor, and no option chooses others. */
	{"kernels", print_kernels, 0, TEXT_KERNELS, NULL,
		"use nodes whose processors have the same instructions, and the same build"},
	OF_TEXT(print_text, "--transport", TEXT_TRANSPORT),
	IN_JOB(print_nccl, "--nccl", nccl),
	CHOICE(print_switch, "--reproducible", any_rounding, roundings),
	CHOICE(print_switch, "--pace", paced, switches),
	IN_JOB(print_real, "--slow-motion", slow_motion),
	CHOICE(print_switch, "--quick", quick, switches),
	IN_JOB(print_integer, "--every", checkpoint_every),
	IN_JOB(print_integer, "--keep", checkpoint_keep),
	OF_TEXT(print_given, "--checkpoint", TEXT_CHECKPOINT),
	OF_TEXT(print_file, "--resume (manifest)", TEXT_RESUME),
	OF_TEXT(print_file, "--weights", TEXT_WEIGHTS),
	OF_TEXT(print_file, "--data", TEXT_DATA),
};
_Static_assert(COUNT_OF(settings) == AGREEMENT_SETTINGS, "a value a setting");

void agreement_of(const struct segment *segment, struct agreement *agreement)
{
	*agreement = (struct agreement){0};
	for (int i = 0; i < AGREEMENT_SETTINGS; i++)
		settings[i].print(&settings[i], segment, agreement->values[i]);
}

bool agreement_check(const char *name, int first, const struct agreement *a, int second,
	const struct agreement *b, struct error *error)
{
	for (int i = 0; i < AGREEMENT_SETTINGS; i++)
		if (strncmp(a->values[i], b->values[i], AGREEMENT_BYTES) != 0)
			return error_set(error, EXIT_CODE_USAGE,
				"%s: rank %d has %s %.*s, rank %d has %.*s; %s", name, second,
				settings[i].name, AGREEMENT_BYTES, b->values[i], first,
				AGREEMENT_BYTES, a->values[i],
				settings[i].fix != NULL ? settings[i].fix
							: "start all ranks with the same options");
	return true;
}
