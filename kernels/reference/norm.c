/* layernorm and rmsnorm. With h = (x - mean) * rstd (rmsnorm: mean 0) and d = dy * weight:
 *   dx = rstd * (d - mean(d) - h * mean(d h)),  rmsnorm without the middle term
 *   dweight = sum over rows of dy h,  dbias = sum over rows of dy. */
#include <math.h>

#include "kernels/reference/reference.h"

static double row_mean(const float *x, int64_t width)
{
	double sum = 0.0;

	for (int64_t j = 0; j < width; j++)
		sum += x[j];
	return sum / (double)width;
}

static double row_rstd(const float *x, int64_t width, double mean, float epsilon)
{
	double sum = 0.0;

	for (int64_t j = 0; j < width; j++)
		sum += (x[j] - mean) * (x[j] - mean);
	return 1.0 / sqrt(sum / (double)width + (double)epsilon);
}

static void norm_rows(const struct norm *n, bool centre)
{
	for (int64_t i = 0; i < n->rows; i++) {
		const float *x = n->x + i * n->width;
		double mean = centre ? row_mean(x, n->width) : 0.0;
		double rstd = row_rstd(x, n->width, mean, n->epsilon);

		for (int64_t j = 0; j < n->width; j++) {
			double bias = centre && n->bias ? n->bias[j] : 0.0;
			n->y[i * n->width + j] =
				(float)((x[j] - mean) * rstd * n->weight[j] + bias);
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

	return (n->x[i * n->width + j] - mean) * n->rstd[i];
}

static void parameter_gradients(const struct norm_backward *n, bool centre)
{
	for (int64_t j = 0; j < n->width; j++) {
		double dweight = n->accumulate_parameters ? n->dweight[j] : 0.0;
		double dbias = n->accumulate_parameters && n->dbias ? n->dbias[j] : 0.0;

		for (int64_t i = 0; i < n->rows; i++) {
			double dy = n->dy[i * n->width + j];
			dweight += dy * normalised(n, centre, i, j);
			dbias += dy;
		}
		n->dweight[j] = (float)dweight;
		if (centre && n->dbias)
			n->dbias[j] = (float)dbias;
	}
}

static void input_gradient(const struct norm_backward *n, bool centre, int64_t i)
{
	double sum = 0.0, dot = 0.0;

	for (int64_t j = 0; j < n->width; j++) {
		double d = (double)n->dy[i * n->width + j] * n->weight[j];
		sum += d;
		dot += d * normalised(n, centre, i, j);
	}
	sum = centre ? sum / (double)n->width : 0.0;
	dot /= (double)n->width;
	for (int64_t j = 0; j < n->width; j++) {
		int64_t at = i * n->width + j;
		double d = (double)n->dy[at] * n->weight[j];
		double dx = n->rstd[i] * (d - sum - normalised(n, centre, i, j) * dot);
		n->dx[at] = (float)((n->accumulate_dx ? n->dx[at] : 0.0) + dx);
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
