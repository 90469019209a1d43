/* Collectives of the fake NCCL between processes: each process leaves a file, and goes on when the
 * files of all exist. The process that starts the others makes, checks and removes the folder. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "executor/transports/comm.h"
#include "tests/executor/fakes/nccl.h"

enum { PATH_ROOM = 1024, LOOKS_AT_ONCE = 64, NAP_NS = 1000000 };

const char *fake_party_folder(void)
{
	return getenv("FAKE_NCCL_FOLDER");
}

/* Another one for each run. */
void fake_party_id(char *id, size_t size)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(id, size, "%d-%lld-%ld", (int)getpid(), (long long)now.tv_sec, now.tv_nsec);
}

static void path_of(char *path, const char *name, const char *what, int number, int index)
{
	snprintf(path, PATH_ROOM, "%s/%s.%s%d.%d", fake_party_folder(), name, what, number, index);
}

/* Whole or not there. */
static void leave(const char *path, const void *first, size_t first_bytes, const void *second,
	size_t second_bytes)
{
	char unfinished[PATH_ROOM + 8];

	snprintf(unfinished, sizeof(unfinished), "%s.new", path);
	FILE *file = fopen(unfinished, "wb");
	bool ok = file != NULL && fwrite(first, 1, first_bytes, file) == first_bytes &&
		  fwrite(second, 1, second_bytes, file) == second_bytes;

	if ((file != NULL && fclose(file) != 0) || !ok || rename(unfinished, path) != 0)
		fake_cuda_fault("the fake cannot write %.200s", path);
}

void fake_party_come(
	const char *name, const char *what, int number, int index, const char *format, ...)
{
	char path[PATH_ROOM], text[64];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	path_of(path, name, what, number, index);
	leave(path, text, strlen(text), "\n", 1);
}

static bool are_there(const char *name, const char *what, int number, int size)
{
	char path[PATH_ROOM];

	for (int i = 0; i < size; i++) {
		path_of(path, name, what, number, i);
		if (access(path, R_OK) != 0)
			return false;
	}
	return true;
}

/* A rank that has looked often looks less often: where one never comes, the others wait for
 * seconds. */
bool fake_party_has_come(const char *name, const char *what, int number, int size)
{
	static _Thread_local int looks;

	if (are_there(name, what, number, size)) {
		looks = 0;
		return true;
	}
	looks += looks < LOOKS_AT_ONCE;
	if (looks == LOOKS_AT_ONCE)
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
	return false;
}

void fake_party_said(
	const char *name, const char *what, int number, int index, int *first, int *second)
{
	char path[PATH_ROOM];

	path_of(path, name, what, number, index);
	FILE *file = fopen(path, "r");
	if (file == NULL || fscanf(file, "%d %d", first, second) != 2)
		fake_cuda_fault("the fake cannot read %.200s", path);
	if (file != NULL)
		fclose(file);
}

/* --- collectives --- */

static size_t sent_bytes(const struct fake_part *part, int size)
{
	size_t each = part->count * fake_element_bytes(part->type);

	return part->kind == COLLECTIVE_REDUCE_SCATTER ? each * (size_t)size : each;
}

static size_t received_bytes(const struct fake_part *part, int size)
{
	size_t each = part->count * fake_element_bytes(part->type);

	return part->kind == COLLECTIVE_ALL_GATHER ? each * (size_t)size : each;
}

void fake_party_show(
	const char *name, int number, int index, int size, const struct fake_part *part)
{
	char path[PATH_ROOM];

	path_of(path, name, "do", number, index);
	leave(path, part, sizeof(*part), part->send,
		fake_clock_is_dry() ? 0 : sent_bytes(part, size));
}

/* What that member brought, with memory of ours; NULL when it is not whole. */
static struct fake_part *fetch(const char *name, int number, int index, int size)
{
	struct fake_part *part = fake_calloc(sizeof(*part));
	char path[PATH_ROOM];

	path_of(path, name, "do", number, index);
	FILE *file = fopen(path, "rb");
	bool ok = file != NULL && fread(part, sizeof(*part), 1, file) == 1;
	if (ok) {
		void *send = fake_calloc(sent_bytes(part, size));

		ok = fread(send, 1, sent_bytes(part, size), file) == sent_bytes(part, size);
		part->send = send;
		part->receive = fake_calloc(received_bytes(part, size));
	}
	if (file != NULL)
		fclose(file);
	if (!ok)
		fake_cuda_fault("the fake cannot read %.200s", path);
	return part;
}

void fake_party_compute(const char *name, int number, int index, int size, struct fake_part *part)
{
	void *parts[MOST_MEMBERS] = {NULL};

	for (int i = 0; i < size; i++)
		parts[i] = i == index ? part : fetch(name, number, i, size);
	if (fake_cuda_first_fault()[0] == '\0')
		fake_nccl_compute(parts, size);
	for (int i = 0; i < size; i++)
		if (i != index) {
			struct fake_part *fetched = parts[i];

			free((void *)(uintptr_t)fetched->send);
			free(fetched->receive);
			free(fetched);
		}
}
