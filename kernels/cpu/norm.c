/* layernorm and rmsnorm. A row's sums run over LANES partial sums in order, then over the lanes by
 * halving: one fixed order per width. Formulas: tests/kernels/reference/norm.c. */
#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

INLINE float row_mean(const enum dtype dtype, const void *x, int64_t width)
{
	vec sum = {0};

	for (int64_t j = 0; j < width; j += LANES)
		sum += load_as(dtype, x, j, width - j);
	return sum_lanes(sum) / (float)width;
}

INLINE float row_rstd(
	const enum dtype dtype, const void *x, int64_t width, float mean, float epsilon)
{
	vec sum = {0};

	for (int64_t j = 0; j < width; j += LANES) {
		vec d = keep_some(load_as(dtype, x, j, width - j) - mean, width - j);
		sum += d * d;
	}
	return 1.0f / sqrtf(sum_lanes(sum) / (float)width + epsilon);
}

INLINE void norm_rows(const enum dtype dtype, const struct norm *n, const bool centre)
{
	for (int64_t i = 0; i < n->rows; i++) {
		const void *x = element_of(dtype, n->x, i * n->width);
		void *y = element_at(dtype, n->y, i * n->width);
		float mean = centre ? row_mean(dtype, x, n->width) : 0.0f;
		float rstd = row_rstd(dtype, x, n->width, mean, n->epsilon);

		for (int64_t j = 0; j < n->width; j += LANES) {
			int64_t rest = n->width - j;
			vec h = (load_as(dtype, x, j, rest) - mean) * rstd;

			h *= load_as(dtype, n->weight, j, rest);
			if (centre && n->bias)
				h += load_as(dtype, n->bias, j, rest);
			store_as(dtype, y, j, h, rest);
		}
		if (centre)
			n->mean[i] = mean;
		n->rstd[i] = rstd;
	}
}

void CPU(layernorm)(struct kernel_context *context, const struct norm *n)
{
	(void)context;
	BY_DTYPE(norm_rows, n->dtype, n, true);
}

void CPU(rmsnorm)(struct kernel_context *context, const struct norm *n)
{
	(void)context;
	BY_DTYPE(norm_rows, n->dtype, n, false);
}

struct row {
	float mean, rstd;    /* of x */
	float sum_d, sum_dh; /* mean(d), mean(d h) with d = dy * weight, h = (x - mean) * rstd */
};

/* The gradients of the parameters, in fp32: where they go, or in the workspace. */
struct sums {
	float *dweight, *dbias;
};

INLINE void row_sums(const enum dtype dtype, const struct norm_backward *n, const bool centre,
	const void *dy, const void *x, struct row *row)
{
	vec sum_d = {0}, sum_dh = {0};

	for (int64_t j = 0; j < n->width; j += LANES) {
		int64_t rest = n->width - j;
		vec d = load_as(dtype, dy, j, rest) * load_as(dtype, n->weight, j, rest);
		vec h = (load_as(dtype, x, j, rest) - row->mean) * row->rstd;

		sum_d += d;
		sum_dh += keep_some(d * h, rest);
	}
	row->sum_d = centre ? sum_lanes(sum_d) / (float)n->width : 0.0f;
	row->sum_dh = sum_lanes(sum_dh) / (float)n->width;
}

/* dx, and this row's share of the parameter gradients. dx may be dy: each dy is read before. */
INLINE void row_gradients(const enum dtype dtype, const struct norm_backward *n, const bool centre,
	int64_t first, const struct row *row, const struct sums *sums)
{
	for (int64_t j = 0; j < n->width; j += LANES) {
		int64_t rest = n->width - j;
		vec g = load_as(dtype, n->dy, first + j, rest);
		vec h = (load_as(dtype, n->x, first + j, rest) - row->mean) * row->rstd;
		vec d = g * load_as(dtype, n->weight, j, rest);
		vec result = (d - row->sum_d - h * row->sum_dh) * row->rstd;
		float *dweight = sums->dweight + j, *dbias = sums->dbias + j;

		if (n->accumulate_dx)
			result = load_as(dtype, n->dx, first + j, rest) + result;
		store_some(dweight, load_some(dweight, rest) + g * h, rest);
		if (centre && n->dbias)
			store_some(dbias, load_some(dbias, rest) + g, rest);
		store_as(dtype, n->dx, first + j, result, rest);
	}
}

INLINE void all_rows_backward(const enum dtype dtype, const struct norm_backward *n,
	const bool centre, const struct sums *sums)
{
	for (int64_t i = 0; i < n->rows; i++) {
		const void *dy = element_of(dtype, n->dy, i * n->width);
		const void *x = element_of(dtype, n->x, i * n->width);
		struct row row = {.mean = centre ? n->mean[i] : 0.0f, .rstd = n->rstd[i]};

		row_sums(dtype, n, centre, dy, x, &row);
		row_gradients(dtype, n, centre, i * n->width, &row, sums);
	}
}

static void store_sums(uint16_t *gradient, const float *sum, int64_t n, bool accumulate)
{
	for (int64_t j = 0; j < n; j += LANES) {
		vec v = load_some(sum + j, n - j);

		if (accumulate)
			v += load_bf16(gradient + j, n - j);
		store_bf16(gradient + j, v, n - j);
	}
}

/* fp32 gradients grow in place; others in the workspace, and are rounded once. */
INLINE void norm_rows_backward(
	struct kernel_context *context, const struct norm_backward *n, const bool centre)
{
	const bool in_place = n->gradient_dtype == DTYPE_FP32, biased = centre && n->dbias;
	float *work = context->workspace;
	struct sums sums = {work, work + n->width};

	if (in_place)
		sums = (struct sums){n->dweight, n->dbias};
	if ((!in_place || !n->accumulate_parameters) && n->width > 0) {
		memset(sums.dweight, 0, (size_t)n->width * sizeof(float));
		if (biased)
			memset(sums.dbias, 0, (size_t)n->width * sizeof(float));
	}
	BY_DTYPE(all_rows_backward, n->dtype, n, centre, &sums);
	if (in_place)
		return;
	store_sums(n->dweight, sums.dweight, n->width, n->accumulate_parameters);
	if (biased)
		store_sums(n->dbias, sums.dbias, n->width, n->accumulate_parameters);
}

void CPU(layernorm_backward)(struct kernel_context *context, const struct norm_backward *n)
{
	norm_rows_backward(context, n, true);
}

void CPU(rmsnorm_backward)(struct kernel_context *context, const struct norm_backward *n)
{
	norm_rows_backward(context, n, false);
}
