/* Training data: a text file (tokens are its bytes) or a token file, with llm.c's header or, where
 * its name ends in .bin, without any.
 *
 * The tokens are cut in windows of seq_len + 1 that overlap by one. Sequence number g of a run
 * (step by step, and within a step in the order of the global batch) is window permute(g mod n) of
 * epoch g / n, so what is trained depends on (seed, step, index) only and not on who trains it. */
#ifndef EXECUTOR_COMPUTE_DATA_H
#define EXECUTOR_COMPUTE_DATA_H

#include "base/base.h"

struct data {
	const char *path;
	int fd;
	int64_t header_bytes, token_bytes; /* 1, 2 or 4 a token */
	bool bare;                         /* tokens alone, without a header */
	int64_t n_tokens, n_windows;
	int64_t seq_len, vocabulary, seed;
	unsigned char *scratch; /* one window as it lies in the file */
};

/* EXIT_CODE_INPUT: no such file, not a token file after all, too short for one window, a vocabulary
 * that has no room for bytes. `path` is borrowed. */
bool data_open(struct data *data, const char *path, int64_t seq_len, int64_t vocabulary,
	int64_t seed, struct error *error);
void data_close(struct data *data);

/* The seq_len + 1 tokens of sequence `number`. EXIT_CODE_INPUT for a token beyond the vocabulary.
 */
bool data_window(struct data *data, int64_t number, int32_t *tokens, struct error *error);

#endif
