/* layernorm and rmsnorm. A row's sums run over LANES partial sums in order, then over the lanes by
 * halving: one fixed order per width. Formulas: kernels/reference/norm.c. */
#include "kernels/cpu/cpu.h"

static float row_mean(const float *x, int64_t width)
{
	vec sum = {0};

	for (int64_t j = 0; j < width; j += LANES)
		sum += load_some(x + j, width - j);
	return sum_lanes(sum) / (float)width;
}

static float row_rstd(const float *x, int64_t width, float mean, float epsilon)
{
	vec sum = {0};

	for (int64_t j = 0; j < width; j += LANES) {
		vec d = keep_some(load_some(x + j, width - j) - mean, width - j);
		sum += d * d;
	}
	return 1.0f / sqrtf(sum_lanes(sum) / (float)width + epsilon);
}

INLINE void norm_rows(const struct norm *n, const bool centre)
{
	for (int64_t i = 0; i < n->rows; i++) {
		const float *x = n->x + i * n->width;
		float *y = n->y + i * n->width;
		float mean = centre ? row_mean(x, n->width) : 0.0f;
		float rstd = row_rstd(x, n->width, mean, n->epsilon);

		for (int64_t j = 0; j < n->width; j += LANES) {
			int64_t rest = n->width - j;
			vec h = (load_some(x + j, rest) - mean) * rstd;

			h *= load_some(n->weight + j, rest);
			if (centre && n->bias)
				h += load_some(n->bias + j, rest);
			store_some(y + j, h, rest);
		}
		if (centre)
			n->mean[i] = mean;
		n->rstd[i] = rstd;
	}
}

void CPU(layernorm)(struct kernel_context *context, const struct norm *n)
{
	(void)context;
	norm_rows(n, true);
}

void CPU(rmsnorm)(struct kernel_context *context, const struct norm *n)
{
	(void)context;
	norm_rows(n, false);
}

struct row {
	float mean, rstd;    /* of x */
	float sum_d, sum_dh; /* mean(d), mean(d h) with d = dy * weight, h = (x - mean) * rstd */
};

INLINE void row_sums(const struct norm_backward *n, const bool centre, const float *dy,
	const float *x, struct row *row)
{
	vec sum_d = {0}, sum_dh = {0};

	for (int64_t j = 0; j < n->width; j += LANES) {
		int64_t rest = n->width - j;
		vec d = load_some(dy + j, rest) * load_some(n->weight + j, rest);
		vec h = (load_some(x + j, rest) - row->mean) * row->rstd;

		sum_d += d;
		sum_dh += keep_some(d * h, rest);
	}
	row->sum_d = centre ? sum_lanes(sum_d) / (float)n->width : 0.0f;
	row->sum_dh = sum_lanes(sum_dh) / (float)n->width;
}

/* dx, and this row's share of the parameter gradients. dx may be dy: each dy is read before. */
INLINE void row_gradients(const struct norm_backward *n, const bool centre, const float *dy,
	const float *x, float *dx, const struct row *row)
{
	for (int64_t j = 0; j < n->width; j += LANES) {
		int64_t rest = n->width - j;
		vec g = load_some(dy + j, rest);
		vec h = (load_some(x + j, rest) - row->mean) * row->rstd;
		vec d = g * load_some(n->weight + j, rest);
		vec result = (d - row->sum_d - h * row->sum_dh) * row->rstd;

		if (n->accumulate_dx)
			result = load_some(dx + j, rest) + result;
		store_some(n->dweight + j, load_some(n->dweight + j, rest) + g * h, rest);
		if (centre && n->dbias)
			store_some(n->dbias + j, load_some(n->dbias + j, rest) + g, rest);
		store_some(dx + j, result, rest);
	}
}

INLINE void norm_rows_backward(const struct norm_backward *n, const bool centre)
{
	if (!n->accumulate_parameters && n->width > 0) {
		memset(n->dweight, 0, (size_t)n->width * sizeof(float));
		if (centre && n->dbias)
			memset(n->dbias, 0, (size_t)n->width * sizeof(float));
	}
	for (int64_t i = 0; i < n->rows; i++) {
		const float *dy = n->dy + i * n->width, *x = n->x + i * n->width;
		struct row row = {.mean = centre ? n->mean[i] : 0.0f, .rstd = n->rstd[i]};

		row_sums(n, centre, dy, x, &row);
		row_gradients(n, centre, dy, x, n->dx + i * n->width, &row);
	}
}

void CPU(layernorm_backward)(struct kernel_context *context, const struct norm_backward *n)
{
	(void)context;
	norm_rows_backward(n, true);
}

void CPU(rmsnorm_backward)(struct kernel_context *context, const struct norm_backward *n)
{
	(void)context;
	norm_rows_backward(n, false);
}
