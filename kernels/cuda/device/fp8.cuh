/* Copies in fp8 for products: the largest element by an integer maximum, whose order is free; then
 * each element times its scale, rounded. A block takes a tile, four threads a row of it. */
#include "kernels/cuda/device/elements.cuh"
#include "kernels/plain/plain.h"

enum {
	FP8_LANES = 16,                  /* elements of a thread */
	FP8_PITCH = CUDA_FP8_TILE + 16,  /* bytes from a row of a transposed tile to the next */
	FP8_TILE_AT = CUDA_FP8_TILE * 4, /* behind the scales, in shared memory */
};

/* The 16 elements of a thread in its row; row and column in the tile and in the matrix. */
struct fp8_place {
	int tile_row, tile_column;
	int64_t row, column;
};

DEVICE fp8_place fp8_place_of()
{
	int tile_row = (int)threadIdx.x / 4, tile_column = (int)threadIdx.x % 4 * FP8_LANES;

	return {tile_row, tile_column, (int64_t)blockIdx.y * CUDA_FP8_TILE + tile_row,
		(int64_t)blockIdx.x * CUDA_FP8_TILE + tile_column};
}

/* Zeros outside of the matrix: they are never the largest. */
DEVICE void fp8_load(float (&x)[FP8_LANES], const fp8_launch &a, const fp8_place &at)
{
	const bf16 *from = (const bf16 *)a.x + at.row * a.stride + at.column;
	int64_t rest = at.row < a.rows ? a.columns - at.column : 0;

#pragma unroll
	for (int i = 0; i < FP8_LANES; i += 8) {
		float some[8];

		load_some(some, from + i, rest - i, a.vector);
#pragma unroll
		for (int j = 0; j < 8; j++)
			x[i + j] = some[j];
	}
}

/* Where row or column i of the tile has its largest element and its scale; -1: outside. */
DEVICE int64_t fp8_index(const fp8_launch &a, int i)
{
	int64_t first = (int64_t)(a.transpose ? blockIdx.x : blockIdx.y) * CUDA_FP8_TILE;

	if (!a.by_rows)
		return 0;
	return first + i < (a.transpose ? a.columns : a.rows) ? first + i : -1;
}

DEVICE int32_t fp8_magnitude(float x)
{
	return (int32_t)(fp8_bits_of(x) & 0x7fffffffu);
}

DEVICE int32_t fp8_larger(int32_t a, int32_t b)
{
	return a > b ? a : b;
}

/* In shared memory first: one of the tile where there is one scale, else one of each row of y. */
KERNEL(fp8_largest)
{
	int32_t *top = (int32_t *)SHARED_MEMORY;
	const fp8_place at = fp8_place_of();
	int each = (int)threadIdx.x;
	float x[FP8_LANES];
	int32_t most = 0;

	if (each < CUDA_FP8_TILE)
		top[each] = 0;
	fp8_load(x, a, at);
	__syncthreads();
#pragma unroll
	for (int i = 0; i < FP8_LANES; i++) {
		most = fp8_larger(most, fp8_magnitude(x[i]));
		if (a.by_rows && a.transpose)
			atomic_max(top + at.tile_column + i, fp8_magnitude(x[i]));
	}
	if (!a.by_rows || !a.transpose)
		atomic_max(top + at.tile_row, most);
	__syncthreads();
	if (!a.by_rows && each == 0) {
		for (int i = 1; i < CUDA_FP8_TILE; i++)
			top[0] = fp8_larger(top[0], top[i]);
		atomic_max(a.largest, top[0]);
	}
	if (a.by_rows && each < CUDA_FP8_TILE && fp8_index(a, each) >= 0)
		atomic_max(a.largest + fp8_index(a, each), top[each]);
}

/* Scales of the tile, to shared memory; the first tiles write what undoes them. */
DEVICE void fp8_find_scales(const fp8_launch &a, float *scales)
{
	int each = (int)threadIdx.x;
	bool first = (a.transpose ? blockIdx.y : blockIdx.x) == 0;
	int64_t index = each < CUDA_FP8_TILE ? fp8_index(a, each) : -1;

	if (index >= 0) {
		scales[each] = fp8_scale((uint32_t)a.largest[index], a.format);
		if (first && (a.by_rows || (each == 0 && blockIdx.x == 0 && blockIdx.y == 0)))
			a.undo[index] = 1.0f / scales[each];
	}
	__syncthreads();
}

DEVICE uint32_t fp8_four(const float *x, int format)
{
	return fp8_pair(x[0], x[1], format) | fp8_pair(x[2], x[3], format) << 16;
}

DEVICE void fp8_write(void *y, int64_t at, uint4 x)
{
	*(uint4 *)((uint8_t *)y + at) = x;
}

/* The tile's columns as rows, through shared memory. */
DEVICE void fp8_turn(const fp8_launch &a, const fp8_place &at, uint8_t *tile, uint4 x)
{
	const uint32_t words[4] = {x.x, x.y, x.z, x.w};
	int64_t row = (int64_t)blockIdx.x * CUDA_FP8_TILE + at.tile_row;
	int64_t column = (int64_t)blockIdx.y * CUDA_FP8_TILE + at.tile_column;

#pragma unroll
	for (int i = 0; i < FP8_LANES; i++)
		tile[(at.tile_column + i) * FP8_PITCH + at.tile_row] =
			(uint8_t)(words[i / 4] >> (8 * (i % 4)));
	__syncthreads();
	if (row < a.columns && column < a.rows)
		fp8_write(a.y, row * a.rows + column,
			*(const uint4 *)(tile + at.tile_row * FP8_PITCH + at.tile_column));
}

KERNEL(fp8_cast)
{
	float *scales = (float *)SHARED_MEMORY;
	const fp8_place at = fp8_place_of();
	float x[FP8_LANES];

	fp8_load(x, a, at);
	fp8_find_scales(a, scales);
#pragma unroll
	for (int i = 0; i < FP8_LANES; i++)
		x[i] *= scales[a.transpose ? at.tile_column + i : at.tile_row];

	const uint4 y = make_uint4(fp8_four(x, a.format), fp8_four(x + 4, a.format),
		fp8_four(x + 8, a.format), fp8_four(x + 12, a.format));

	if (a.transpose)
		fp8_turn(a, at, (uint8_t *)SHARED_MEMORY + FP8_TILE_AT, y);
	else if (at.row < a.rows && at.column < a.columns)
		fp8_write(a.y, at.row * a.columns + at.column, y);
}
