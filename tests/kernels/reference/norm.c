/* layernorm and rmsnorm. With h = (x - mean) * rstd (rmsnorm: mean 0) and d = dy * weight:
 *   dx = rstd * (d - mean(d) - h * mean(d h)),  rmsnorm without the middle term
 *   dweight = sum over rows of dy h,  dbias = sum over rows of dy. */
#include <math.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

static double row_mean(enum dtype dtype, const void *x, int64_t width)
{
	double sum = 0.0;

	for (int64_t j = 0; j < width; j++)
		sum += element_get(dtype, x, j);
	return sum / (double)width;
}

static double row_rstd(enum dtype dtype, const void *x, int64_t width, double mean, float epsilon)
{
	double sum = 0.0;

	for (int64_t j = 0; j < width; j++) {
		double d = element_get(dtype, x, j) - mean;
		sum += d * d;
	}
	return 1.0 / sqrt(sum / (double)width + (double)epsilon);
}

static void norm_rows(const struct norm *n, bool centre)
{
	for (int64_t i = 0; i < n->rows; i++) {
		const void *x = element_of(n->dtype, n->x, i * n->width);
		double mean = centre ? row_mean(n->dtype, x, n->width) : 0.0;
		double rstd = row_rstd(n->dtype, x, n->width, mean, n->epsilon);

		for (int64_t j = 0; j < n->width; j++) {
			double bias = centre && n->bias ? element_get(n->dtype, n->bias, j) : 0.0;
			double h = (element_get(n->dtype, x, j) - mean) * rstd;

			element_put(n->dtype, n->y, i * n->width + j,
				(float)(h * element_get(n->dtype, n->weight, j) + bias));
		}
		if (centre)
			n->mean[i] = (float)mean;
		n->rstd[i] = (float)rstd;
	}
}

void reference_layernorm(struct kernel_context *context, const struct norm *n)
{
	(void)context;
	norm_rows(n, true);
}

void reference_rmsnorm(struct kernel_context *context, const struct norm *n)
{
	(void)context;
	norm_rows(n, false);
}

static double normalised(const struct norm_backward *n, bool centre, int64_t i, int64_t j)
{
	double mean = centre ? n->mean[i] : 0.0;

	return (element_get(n->dtype, n->x, i * n->width + j) - mean) * n->rstd[i];
}

static void parameter_gradients(const struct norm_backward *n, bool centre)
{
	for (int64_t j = 0; j < n->width; j++) {
		enum dtype gradient = n->gradient_dtype;
		bool more = n->accumulate_parameters, biased = centre && n->dbias;
		double dweight = more ? element_get(gradient, n->dweight, j) : 0.0;
		double dbias = more && biased ? element_get(gradient, n->dbias, j) : 0.0;

		for (int64_t i = 0; i < n->rows; i++) {
			double dy = element_get(n->dtype, n->dy, i * n->width + j);
			dweight += dy * normalised(n, centre, i, j);
			dbias += dy;
		}
		element_put(gradient, n->dweight, j, (float)dweight);
		if (biased)
			element_put(gradient, n->dbias, j, (float)dbias);
	}
}

/* The gradient of h. */
static double scaled(const struct norm_backward *n, int64_t i, int64_t j)
{
	return (double)element_get(n->dtype, n->dy, i * n->width + j) *
	       element_get(n->dtype, n->weight, j);
}

static void input_gradient(const struct norm_backward *n, bool centre, int64_t i)
{
	double sum = 0.0, dot = 0.0;

	for (int64_t j = 0; j < n->width; j++) {
		double d = scaled(n, i, j);
		sum += d;
		dot += d * normalised(n, centre, i, j);
	}
	sum = centre ? sum / (double)n->width : 0.0;
	dot /= (double)n->width;
	for (int64_t j = 0; j < n->width; j++) {
		int64_t at = i * n->width + j;
		double dx =
			n->rstd[i] * (scaled(n, i, j) - sum - normalised(n, centre, i, j) * dot);
		double more = n->accumulate_dx ? element_get(n->dtype, n->dx, at) : 0.0;
		element_put(n->dtype, n->dx, at, (float)(more + dx));
	}
}

/* dx may be dy, so the parameters, which need all of dy, come first. */
static void norm_rows_backward(const struct norm_backward *n, bool centre)
{
	parameter_gradients(n, centre);
	for (int64_t i = 0; i < n->rows; i++)
		input_gradient(n, centre, i);
}

void reference_layernorm_backward(struct kernel_context *context, const struct norm_backward *n)
{
	(void)context;
	norm_rows_backward(n, true);
}

void reference_rmsnorm_backward(struct kernel_context *context, const struct norm_backward *n)
{
	(void)context;
	norm_rows_backward(n, false);
}
