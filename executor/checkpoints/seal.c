#include "executor/checkpoints/seal.h"

#include <string.h>

static const char end[] = "\n}\n", before[] = ",\n  \"xxh3_128\": \"", after[] = "\"\n}\n";

enum { DIGITS = sizeof(struct digest) - 1 };

void seal_add(struct text *text)
{
	text->length -= strlen(end);
	struct digest digest = digest_of(text->data, text->length);
	text_add(text, before);
	text_add(text, digest.hex);
	text_add(text, after);
}

enum seal seal_look(const char *name, const char *text, size_t length, struct error *error)
{
	const size_t tail = strlen(before) + DIGITS + strlen(after);

	if (length < tail)
		return SEAL_NONE;
	const char *digits = text + length - tail + strlen(before);
	if (memcmp(text + length - tail, before, strlen(before)) != 0 ||
		memcmp(digits + DIGITS, after, strlen(after)) != 0)
		return SEAL_NONE;
	struct digest digest = digest_of(text, length - tail);
	if (memcmp(digits, digest.hex, DIGITS) == 0)
		return SEAL_WHOLE;
	error_set(error, EXIT_CODE_INPUT,
		"%s: damaged: bytes 0 to %lld: expected checksum %.*s, got %s", name,
		(long long)(length - tail), (int)DIGITS, digits, digest.hex);
	return SEAL_BROKEN;
}
