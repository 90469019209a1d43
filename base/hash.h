/* Digests: xxh3-128, printed as 32 hexadecimal digits. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>

struct digest {
	char hex[33];
};

struct digest digest_of(const void *data, size_t length);

/* The same of what comes piece by piece. */
struct hashing;
struct hashing *hashing_begin(void);
void hashing_add(struct hashing *hashing, const void *data, size_t length);
struct digest hashing_end(struct hashing *hashing); /* which is gone then */

#endif
