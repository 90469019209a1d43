/* fp8 by its definition: a number's code is found among the values of all codes. */
#include <math.h>
#include <stdlib.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

enum { LAST_E4M3 = 0x7e, LAST_E5M2 = 0x7b }; /* codes of the largest numbers */

static int last_code(enum fp8_format format)
{
	return format == FP8_E4M3 ? LAST_E4M3 : LAST_E5M2;
}

double reference_fp8_value(uint8_t code, enum fp8_format format)
{
	int bits = format == FP8_E4M3 ? 3 : 2, bias = format == FP8_E4M3 ? 7 : 15;
	int exponent = (code & 0x7f) >> bits, fraction = code & ((1 << bits) - 1);
	double sign = code & 0x80 ? -1 : 1;

	if ((code & 0x7f) > last_code(format))
		return format == FP8_E5M2 && fraction == 0 ? sign * INFINITY : (double)NAN;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - bits);
	return sign * ldexp((1 << bits) + fraction, exponent - bias - bits);
}

uint8_t reference_fp8_round(float x, enum fp8_format format)
{
	int sign = signbit(x) ? 0x80 : 0, below = 0, last = last_code(format);
	double size = fabs((double)x);

	if (isnan(x))
		return FP8_NAN;
	/* Codes are in the order of their values. */
	for (int step = 64; step > 0; step /= 2)
		if (below + step <= last &&
			reference_fp8_value((uint8_t)(below + step), format) <= size)
			below += step;
	if (below == last)
		return (uint8_t)(sign | last);
	double down = size - reference_fp8_value((uint8_t)below, format);
	double up = reference_fp8_value((uint8_t)(below + 1), format) - size;
	bool away = up < down || (up == down && below % 2 == 1);
	return (uint8_t)(sign | (away ? below + 1 : below));
}

/* Element p along k of row i. */
static float operand_element(const struct reference_operand *o, int64_t i, int64_t p)
{
	return element_get(DTYPE_BF16, o->x, o->across ? p * o->stride + i : i * o->stride + p);
}

static float larger(float a, float b)
{
	return isnan(a) || a > b ? a : b;
}

static float largest_of_row(const struct reference_operand *o, int64_t i)
{
	float most = 0;

	for (int64_t p = 0; p < o->k; p++)
		most = larger(fabsf(operand_element(o, i, p)), most);
	return most;
}

static float scale_of(float largest, enum fp8_format format)
{
	float most = format == FP8_E4M3 ? 448.0f : 57344.0f;

	return most / (largest < 1e-12f ? 1e-12f : largest);
}

void reference_fp8_copy(const struct reference_operand *o, uint8_t *codes, float *undo)
{
	float most = 0;

	for (int64_t i = 0; i < o->rows; i++)
		most = larger(largest_of_row(o, i), most);
	for (int64_t i = 0; i < o->rows; i++) {
		float scale = scale_of(o->by_rows ? largest_of_row(o, i) : most, o->format);

		for (int64_t p = 0; p < o->k; p++)
			codes[i * o->k + p] =
				reference_fp8_round(operand_element(o, i, p) * scale, o->format);
		undo[i] = 1.0f / scale;
	}
}

void reference_gemm_fp8(const struct gemm *g, const struct gemm_fp8 *how)
{
	const struct reference_operand left = {
		g->a, g->m, g->k, g->lda, g->transpose_a, how->by_rows, how->a};
	const struct reference_operand right = {
		g->b, g->n, g->k, g->ldb, !g->transpose_b, how->by_rows, how->b};
	uint8_t *a = malloc((size_t)((g->m + g->n) * g->k)), *b = a + g->m * g->k;
	float *undo_a = malloc((size_t)(g->m + g->n) * sizeof(float)), *undo_b = undo_a + g->m;

	if (a == NULL || undo_a == NULL)
		abort();
	reference_fp8_copy(&left, a, undo_a);
	reference_fp8_copy(&right, b, undo_b);
	for (int64_t i = 0; i < g->m; i++)
		for (int64_t j = 0; j < g->n; j++) {
			int64_t at = i * g->ldc + j;
			double c = g->accumulate ? element_get(g->c_dtype, g->c, at) : 0, sum = 0;

			for (int64_t p = 0; p < g->k; p++)
				sum += reference_fp8_value(a[i * g->k + p], how->a) *
				       reference_fp8_value(b[j * g->k + p], how->b);
			element_put(g->c_dtype, g->c, at, (float)(c + sum * undo_a[i] * undo_b[j]));
		}
	free(undo_a);
	free(a);
}
