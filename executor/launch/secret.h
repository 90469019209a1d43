/* A secret that only the ranks of one job know, and proofs of knowing it: keyed hashes
 * (HMAC-SHA-512-256 of libsodium) over a message and over a number that each side has just drawn,
 * so that no earlier message proves anything. */
#ifndef EXECUTOR_LAUNCH_SECRET_H
#define EXECUTOR_LAUNCH_SECRET_H

#include "base/base.h"

enum { SECRET_BYTES = 32, SECRET_LEAST = 16, SECRET_MOST = 4096 };

struct secret {
	bool known; /* false: none was given, and all proofs are zeros */
	unsigned char key[SECRET_BYTES];
};

struct nonce {
	unsigned char bytes[SECRET_BYTES];
};

struct proof {
	unsigned char bytes[SECRET_BYTES];
};

/* Reads SHARDPLAN_SECRET, or the file that SHARDPLAN_SECRET_FILE names. EXIT_CODE_USAGE: both are
 * given, or it is too short; EXIT_CODE_INPUT: others can read the file; EXIT_CODE_ENVIRONMENT: this
 * build has no libsodium. */
bool secret_find(struct secret *secret, struct error *error);

/* EXIT_CODE_ENVIRONMENT when the system has no random numbers. */
bool nonce_draw(struct nonce *nonce, struct error *error);

/* `role` keeps what one side says from being sent back to it. */
struct proof secret_prove(const struct secret *secret, const char *role, const struct nonce *caller,
	const struct nonce *called, const void *said, size_t bytes);
bool proof_equal(const struct proof *a, const struct proof *b);

#endif
