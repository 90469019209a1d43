#include "executor/ranks/shared_segment.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/memory/memory.h"

/* The number also tells our own segments from any other file that is passed by mistake. */
static const uint64_t segment_magic = 0x73686172645F3031;

enum { PAGE = 4096, WINDOW_ALIGNMENT = HUGE_PAGE };

static int64_t reserve(int64_t *end, int64_t bytes, int64_t alignment)
{
	int64_t start = round_up(*end, alignment);

	*end = start + bytes;
	return start;
}

/* Sets the offsets of all parts, and the bytes of the whole. */
static void lay_out(struct segment_header *h, const char *const *texts)
{
	int64_t end = sizeof(*h);

	h->boards = reserve(&end, h->job.ranks * (int64_t)sizeof(struct board), PAGE);
	for (int i = 0; i < TEXT_COUNT; i++)
		if (texts[i] != NULL)
			h->texts[i] = reserve(&end, (int64_t)strlen(texts[i]) + 1, 1);
	h->results = reserve(&end, h->n_results * (int64_t)sizeof(struct step_result), PAGE);
	h->report = reserve(&end, h->report_bytes, PAGE);
	h->windows = reserve(&end, 0, WINDOW_ALIGNMENT);
	h->window_bytes = round_up(h->window_bytes, WINDOW_ALIGNMENT);
	h->bytes = h->windows + h->job.ranks * h->window_bytes;
}

static bool system_error(struct error *error, const char *what, int64_t bytes)
{
	return error_set(error, EXIT_CODE_ENVIRONMENT, "%s of %lld bytes: %s", what,
		(long long)bytes, strerror(errno));
}

static bool map(struct segment *segment, int64_t bytes, int protection, struct error *error)
{
	void *base = huge_pages_map(segment->fd, bytes, protection);

	if (base == MAP_FAILED)
		return system_error(error, "mapping the shared memory", bytes);
	segment->base = base;
	segment->mapped = bytes;
	segment->header = base;
	return true;
}

bool segment_create(struct segment *segment, const struct job *job, const char *const *texts,
	int64_t n_results, int64_t report_bytes, int64_t window_bytes, struct error *error)
{
	struct segment_header header = {.magic = segment_magic,
		.job = *job,
		.n_results = n_results,
		.report_bytes = report_bytes,
		.window_bytes = window_bytes};

	lay_out(&header, texts);
	*segment = (struct segment){.fd = memfd_create("shardplan", MFD_CLOEXEC), .rank = -1};
	if (segment->fd < 0)
		return system_error(error, "shared memory (memfd_create)", header.bytes);
	/* The memory has no name, and only this user may open it by way of /proc. */
	if (fchmod(segment->fd, 0600) != 0 || ftruncate(segment->fd, header.bytes) != 0) {
		system_error(error, "shared memory (ftruncate)", header.bytes);
		segment_finish(segment);
		return false;
	}
	if (!map(segment, header.windows, PROT_READ | PROT_WRITE, error)) {
		segment_finish(segment);
		return false;
	}
	*segment->header = header;
	for (int i = 0; i < TEXT_COUNT; i++)
		if (texts[i] != NULL)
			strcpy(segment->base + header.texts[i], texts[i]);
	return true;
}

/* Makes a part writable. Ranks that share no window have one without bytes, which may lie behind
 * the end. */
static bool open_to_writing(char *start, int64_t bytes, struct error *error)
{
	return bytes == 0 || mprotect(start, (size_t)bytes, PROT_READ | PROT_WRITE) == 0 ||
	       system_error(error, "protecting the shared memory", bytes);
}

static bool read_header(int fd, int rank, struct segment_header *header, struct error *error)
{
	if (pread(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header) ||
		header->magic != segment_magic || rank < 0 || rank >= header->job.ranks)
		return error_set(error, EXIT_CODE_USAGE,
			"%s is for rank processes that shardplan starts itself",
			EXECUTOR_RANK_ARGUMENT);
	return true;
}

bool segment_attach(struct segment *segment, int fd, int rank, struct error *error)
{
	struct segment_header header;

	*segment = (struct segment){.fd = fd, .rank = rank};
	if (!read_header(fd, rank, &header, error))
		return false;
	if (!map(segment, header.bytes, PROT_READ, error))
		return false;
	return open_to_writing(segment->base, header.windows, error) &&
	       open_to_writing(segment_window(segment, rank), header.window_bytes, error);
}

bool segment_leave_fault(int fd, int rank, const struct error *error)
{
	struct segment_header header;
	struct error ignored = {0};
	struct segment segment = {.fd = -1, .rank = rank};

	if (!read_header(fd, rank, &header, &ignored))
		return false;
	void *base = mmap(NULL, sizeof(header), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return false;
	segment.header = base;
	segment_fault(&segment, error->code, "rank %d: %s", rank, error->message);
	munmap(base, sizeof(header));
	return true;
}

void segment_finish(struct segment *segment)
{
	if (segment->base != NULL)
		munmap(segment->base, (size_t)segment->mapped);
	if (segment->fd >= 0)
		close(segment->fd);
	*segment = (struct segment){.fd = -1};
}

struct board *segment_board(const struct segment *segment, int rank)
{
	return (struct board *)(segment->base + segment->header->boards) + rank;
}

char *segment_window(const struct segment *segment, int rank)
{
	return segment->base + segment->header->windows + rank * segment->header->window_bytes;
}

const char *segment_text(const struct segment *segment, enum job_text text)
{
	int64_t offset = segment->header->texts[text];

	return offset > 0 ? segment->base + offset : NULL;
}

struct step_result *segment_results(const struct segment *segment)
{
	return (struct step_result *)(segment->base + segment->header->results);
}

char *segment_report(const struct segment *segment)
{
	return segment->base + segment->header->report;
}

void segment_leave_notes(struct segment *segment, const struct text *lines)
{
	struct segment_header *header = segment->header;
	uint32_t length = atomic_load(&header->notes_length);
	size_t room = sizeof(header->notes) - length;
	size_t n = lines->length < room ? lines->length : room;

	memcpy(header->notes + length, text_string(lines), n);
	atomic_store(&header->notes_length, length + (uint32_t)n);
}

void segment_begin_call(struct segment *segment, enum rank_call call)
{
	struct board *board = segment_board(segment, segment->rank);

	atomic_store(&board->call_since, (int64_t)(1e9 * clock_of_machine()));
	atomic_store(&board->call, (int32_t)call);
}

void segment_end_call(struct segment *segment)
{
	atomic_store(&segment_board(segment, segment->rank)->call, CALL_NONE);
}

bool segment_fault_error(struct segment *segment, const struct error *error)
{
	struct fault_record *fault = &segment->header->fault;
	int32_t none = 0;

	if (atomic_compare_exchange_strong(&fault->state, &none, 1)) {
		fault->code = (int32_t)error->code;
		snprintf(fault->message, sizeof(fault->message), "%s", error->message);
		atomic_store(&fault->state, 2);
	}
	atomic_store(&segment->header->abort, 1);
	if (segment->shared != NULL)
		atomic_store(&segment->shared->header->abort, 1);
	event_wake(&segment->header->steps_done);
	return false;
}

bool segment_fault(struct segment *segment, enum exit_code code, const char *format, ...)
{
	struct error error = {.code = code};
	va_list args;

	va_start(args, format);
	vsnprintf(error.message, sizeof(error.message), format, args);
	va_end(args);
	return segment_fault_error(segment, &error);
}

bool segment_aborted(const struct segment *segment)
{
	return atomic_load(&segment->header->abort) != 0 ||
	       (segment->shared != NULL && atomic_load(&segment->shared->header->abort) != 0);
}

bool segment_outcome(const struct segment *segment, struct error *error)
{
	const struct fault_record *fault = &segment->header->fault;

	if (atomic_load(&fault->state) == 2)
		return error_set(error, (enum exit_code)fault->code, "%s", fault->message);
	return !segment_aborted(segment) ||
	       error_set(error, EXIT_CODE_FAULT, "a rank gave up without saying why");
}

bool segment_leave_report(struct segment *segment, const struct text *text, struct error *error)
{
	struct segment_header *header = segment->header;

	if ((int64_t)text->length >= header->report_bytes)
		return error_set(error, EXIT_CODE_INTERNAL,
			"a report of %lld bytes, there is room for %lld", (long long)text->length,
			(long long)header->report_bytes);
	memcpy(segment_report(segment), text_string(text), text->length);
	header->report_length = (int64_t)text->length;
	return true;
}
