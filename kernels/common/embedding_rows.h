/* Which rows of its tables an embedding touches; every table on the host goes by these. */
#ifndef KERNELS_EMBEDDING_ROWS_H
#define KERNELS_EMBEDDING_ROWS_H

#include <string.h>

#include "kernels/common/arguments.h"

static inline bool embedding_knows(int64_t id, int64_t vocabulary, struct error *error)
{
	if (id >= 0 && id < vocabulary)
		return true;
	return error_set(error, EXIT_CODE_INTERNAL,
		"token id %lld is outside the vocabulary of %lld", (long long)id,
		(long long)vocabulary);
}

/* The row of its table that token t names, by its id or its position. */
static inline int64_t embedding_row(const struct embedding_backward *e, bool by_id, int64_t t)
{
	if (by_id)
		return e->ids[id_place(t, e->ids_stride > 0 ? e->length : 0, e->ids_stride)];
	return t % e->length;
}

/* Has a token before t the same id? */
static inline bool embedding_seen(const struct embedding_backward *e, int64_t t)
{
	for (int64_t u = 0; u < t; u++)
		if (embedding_row(e, true, u) == embedding_row(e, true, t))
			return true;
	return false;
}

/* Gradients that are not added to begin at zero. */
static inline void embedding_begin(const struct embedding_backward *e)
{
	size_t row = (size_t)(e->width * dtype_bytes(e->gradient_dtype));

	if (e->dtable && !e->accumulate_table)
		memset(e->dtable, 0, (size_t)e->vocabulary * row);
	if (e->dpositions && !e->accumulate_positions)
		memset(e->dpositions, 0, (size_t)e->position_rows * row);
}

#endif
