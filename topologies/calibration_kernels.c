/* What a GPU's own kernels reach, by the width of their rows. */
#include <string.h>

#include "topologies/calibration.h"

const char *const calibration_kernel_names[] = {
#define X(suffix, name) [KERNEL_##suffix] = name,
	CALIBRATION_KERNEL_KINDS(X)
#undef X
		NULL};

static int compare_i64(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

int calibration_compare_kernel(
	const struct calibration_kernel *a, const struct calibration_kernel *b)
{
	int order = compare_i64(a->kernel, b->kernel);

	order = order != 0 ? order : compare_i64(a->dtype, b->dtype);
	order = order != 0 ? order : compare_i64(a->width, b->width);
	return order != 0 ? order : compare_i64(a->length, b->length);
}

bool calibration_add_kernel(
	struct calibration *calibration, const struct calibration_kernel *kernel)
{
	struct calibration_kernel *kernels = calibration->kernels;
	int at = calibration->n_kernels;

	while (at > 0 && calibration_compare_kernel(&kernels[at - 1], kernel) > 0)
		at--;
	if (at > 0 && calibration_compare_kernel(&kernels[at - 1], kernel) == 0)
		return false;
	for (int i = calibration->n_kernels; i > at; i--)
		kernels[i] = kernels[i - 1];
	kernels[at] = *kernel;
	calibration->n_kernels++;
	return true;
}
