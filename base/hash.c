#include "base/hash.h"

#include <stdio.h>

/* Inlined rather than linked: one library less for the 32-bit and WebAssembly builds. */
#define XXH_INLINE_ALL
#include <xxhash.h>

struct digest digest_of(const void *data, size_t length)
{
	struct digest digest;
	XXH128_hash_t hash = XXH3_128bits(data, length);

	/* The order of digits that `xxhsum -H2` prints. */
	snprintf(digest.hex, sizeof(digest.hex), "%016llx%016llx", (unsigned long long)hash.high64,
		(unsigned long long)hash.low64);
	return digest;
}
