/* Checks the sums of a checkpoint's files. Where one is wrong, the sums of its ranges say where. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor/checkpoints/checkpoints.h"

enum { CHUNK = 1 << 20 };

struct check {
	const struct checkpoint_file *file;
	const char *path;
	int fd;
	char *chunk;
};

static bool read_at(const struct check *check, int64_t offset, int64_t bytes, struct error *error)
{
	return store_read_at(check->fd, check->path, offset, check->chunk, bytes, error);
}

static bool sum(const struct check *check, int64_t begin, int64_t end, struct digest *digest,
	struct error *error)
{
	struct hashing *hashing = hashing_begin();
	bool ok = true;

	for (int64_t at = begin; ok && at < end; at += CHUNK) {
		int64_t bytes = min_i64(CHUNK, end - at);

		ok = read_at(check, at, bytes, error);
		if (ok)
			hashing_add(hashing, check->chunk, (size_t)bytes);
	}
	*digest = hashing_end(hashing);
	return ok;
}

/* Returns the digest as the file has it, in the order of its digits. */
static struct digest written(const char bytes[CHECKPOINT_SUM])
{
	struct digest digest;

	for (int i = 0; i < CHECKPOINT_SUM; i++)
		snprintf(digest.hex + 2 * i, 3, "%02x", (unsigned char)bytes[i]);
	return digest;
}

static bool damaged(const struct check *check, int64_t begin, int64_t end, const char *expected,
	const struct digest *found, struct error *error)
{
	return error_set(error, EXIT_CODE_INPUT,
		"%s: damaged: bytes %lld to %lld: expected checksum %s, got %s", check->path,
		(long long)begin, (long long)end, expected, found->hex);
}

/* The sums of the ranges may be damaged too, or the whole file may be another one. Then the message
 * names the whole file. */
static bool locate(const struct check *check, const struct digest *whole, struct error *error)
{
	const struct checkpoint_file *file = check->file;
	int64_t data = file->bytes - file->ranges * CHECKPOINT_SUM;

	for (int64_t r = 0; r < file->ranges && file->range_bytes > 0; r++) {
		int64_t begin = r * file->range_bytes,
			end = min_i64(begin + file->range_bytes, data);
		struct digest found;

		if (!read_at(check, data + r * CHECKPOINT_SUM, CHECKPOINT_SUM, error))
			return false;
		struct digest expected = written(check->chunk);
		if (!sum(check, begin, end, &found, error))
			return false;
		if (strcmp(expected.hex, found.hex) != 0)
			return damaged(check, begin, end, expected.hex, &found, error);
	}
	return damaged(check, 0, file->bytes, file->digest, whole, error);
}

static bool verify(struct check *check, struct error *error)
{
	struct digest whole;

	check->fd = open(check->path, O_RDONLY | O_CLOEXEC);
	if (check->fd < 0)
		return error_set(error, EXIT_CODE_INPUT, "%s: %s", check->path, strerror(errno));
	bool ok = sum(check, 0, check->file->bytes, &whole, error);
	if (ok && strcmp(whole.hex, check->file->digest) != 0)
		ok = locate(check, &whole, error);
	close(check->fd);
	return ok;
}

bool checkpoint_verify(const struct manifest *manifest, int first, int apart, struct error *error)
{
	struct check check = {.chunk = malloc(CHUNK)};
	struct arena arena = {0};
	bool ok = true;

	if (check.chunk == NULL)
		base_out_of_memory(CHUNK);
	for (int f = first; ok && f < manifest->n_files; f += apart) {
		check.file = &manifest->files[f];
		check.path = arena_printf(&arena, "%s/%s", manifest->folder, check.file->name);
		ok = verify(&check, error);
	}
	free(check.chunk);
	arena_finish(&arena);
	return ok;
}
