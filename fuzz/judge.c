/* What an answer to any input must be: quick, small, true to its own writing, or one line of error.
 */
#include <sys/resource.h>
#include <time.h>

#include "fuzz/fuzz.h"

const struct limits usual_limits = {.seconds = 1, .kib = 64 << 10};

/* Leaks are for LSan to find. One is the library's: libfyaml 0.7.12 loses a buffer of quotes that
 * it refuses. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libfyaml\n";
}

static double processor_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Asks no kernel: processor time is never more than this, and need not be known below the limit. */
static double passed_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The most that the process ever had: it grows with an input that takes more than any before. */
static long peak_kib(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

static const char *judge_text(const char *message, size_t length)
{
	uint32_t point;

	if (length == 0)
		return "an error without a message";
	if (length > MESSAGE_BYTES + strlen(INPUT_NAME))
		return "a message without bound";
	for (size_t i = 0; i < length;) {
		int bytes = utf8_decode(message + i, length - i, &point);
		if (bytes == 0)
			return "a message that is not UTF-8";
		if (point == '\n')
			return "a message of more than one line";
		if (point < 32 || point == 127)
			return "a control character in a message";
		i += (size_t)bytes;
	}
	return NULL;
}

static const char *judge_error(bool ok, const struct error *error)
{
	if (ok)
		return error->code == EXIT_CODE_OK ? NULL : "accepted, with an error";
	if (error->code < EXIT_CODE_NO || error->code > EXIT_CODE_INPUT)
		return "an exit code other than 1, 2, 3";
	return judge_text(error->message, strlen(error->message));
}

bool judge_lines(const char *lines, struct error *error)
{
	while (*lines != '\0') {
		size_t length = strcspn(lines, "\n");
		const char *wrong = judge_text(lines, length);
		if (wrong != NULL)
			return error_set(
				error, EXIT_CODE_INTERNAL, "%s: %.*s", wrong, (int)length, lines);
		lines += length + (lines[length] == '\n');
	}
	return true;
}

/* What was printed reads back as what prints the same. */
static const char *judge_printed(
	const struct target *target, struct arena *arena, const struct text *printed)
{
	const struct target *reader = target->again != NULL ? target_find(target->again) : target;
	struct error error = {0};
	struct text second = {0};
	const char *wrong = NULL;

	if (!reader->read(reader, arena, printed->data, printed->length, &second, &error))
		wrong = "what is printed of it is refused";
	else if (strcmp(text_string(&second), text_string(printed)) != 0)
		wrong = "what is printed of it reads back as something else";
	text_finish(&second);
	return wrong;
}

static const char *judge_answer(
	const struct target *target, const char *text, size_t length, bool *accepted)
{
	struct arena arena = {0};
	struct text printed = {0};
	struct error error = {0};

	*accepted = target->read(target, &arena, text, length, &printed, &error);
	const char *wrong = judge_error(*accepted, &error);
	if (wrong == NULL && *accepted && printed.length > 0)
		wrong = judge_printed(target, &arena, &printed);
	text_finish(&printed);
	arena_finish(&arena);
	return wrong;
}

const char *judge(const struct target *target, const char *text, size_t length,
	const struct limits *limits, bool *accepted)
{
	static long peak; /* of all before */
	double begin = passed_time();

	if (peak == 0)
		peak = peak_kib();
	const char *wrong = judge_answer(target, text, length, accepted);
	if (passed_time() - begin > limits->seconds) {
		begin = processor_time();
		wrong = judge_answer(target, text, length, accepted);
		if (wrong == NULL && processor_time() - begin > limits->seconds)
			wrong = "too slow";
	}
	long before = peak;
	peak = peak_kib();
	if (wrong == NULL && peak - before > limits->kib + (long)(length >> 10))
		wrong = "too much memory";
	return wrong;
}
