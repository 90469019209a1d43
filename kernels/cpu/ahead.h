/* B comes from memory while the block before it is multiplied: packing alone would wait for every
 * line of it. */
#ifndef KERNELS_CPU_AHEAD_H
#define KERNELS_CPU_AHEAD_H

#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

/* A block of B as it is stored. */
struct ahead {
	const char *from;
	int64_t rows, row_bytes, bytes; /* of each row */
};

/* Terms [term, term + terms) of columns [column, column + columns), as far as B has them. */
INLINE struct ahead ahead_of(
	const struct gemm *g, int64_t term, int64_t terms, int64_t column, int64_t columns)
{
	int64_t size = dtype_bytes(g->dtype);
	int64_t k = g->k - term < terms ? g->k - term : terms;
	int64_t n = g->n - column < columns ? g->n - column : columns;

	return (struct ahead){
		.from = (const char *)g->b +
			(g->transpose_b ? column * g->ldb + term : term * g->ldb + column) * size,
		.rows = g->transpose_b ? n : k,
		.row_bytes = g->ldb * size,
		.bytes = (g->transpose_b ? k : n) * size,
	};
}

/* Part `part` of `parts`, into the second-level cache, which on levels before v4 is too small for
 * two blocks. */
INLINE void fetch_ahead(const struct ahead *ahead, int64_t part, int64_t parts)
{
	int64_t end = TILE_ROWS == 12 ? ahead->rows * (part + 1) / parts : 0;

	for (int64_t row = ahead->rows * part / parts; row < end; row++)
		for (int64_t byte = 0; byte < ahead->bytes; byte += 64)
			__builtin_prefetch(ahead->from + row * ahead->row_bytes + byte, 0, 2);
}

#endif
