#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

/* Inlined rather than linked: one library less for the 32-bit and WebAssembly builds. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/out_of_memory.h"

/* The order of digits that `xxhsum -H2` prints. */
static struct digest print(XXH128_hash_t hash)
{
	struct digest digest;

	snprintf(digest.hex, sizeof(digest.hex), "%016llx%016llx", (unsigned long long)hash.high64,
		(unsigned long long)hash.low64);
	return digest;
}

struct digest digest_of(const void *data, size_t length)
{
	return print(XXH3_128bits(data, length));
}

struct hashing {
	XXH3_state_t *state;
};

struct hashing *hashing_begin(void)
{
	struct hashing *hashing = malloc(sizeof(*hashing));

	if (hashing == NULL)
		base_out_of_memory(sizeof(*hashing));
	hashing->state = XXH3_createState();
	if (hashing->state == NULL)
		base_out_of_memory(sizeof(*hashing->state));
	XXH3_128bits_reset(hashing->state);
	return hashing;
}

void hashing_add(struct hashing *hashing, const void *data, size_t length)
{
	XXH3_128bits_update(hashing->state, data, length);
}

struct digest hashing_end(struct hashing *hashing)
{
	struct digest digest = print(XXH3_128bits_digest(hashing->state));

	XXH3_freeState(hashing->state);
	free(hashing);
	return digest;
}
