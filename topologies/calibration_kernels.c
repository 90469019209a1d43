/* What a GPU's own kernels reach, by the width of their rows. */
#include "topologies/calibration.h"
#include "topologies/sorted.h"

const char *const calibration_kernel_names[] = {
#define X(suffix, name) [KERNEL_##suffix] = name,
	CALIBRATION_KERNEL_KINDS(X)
#undef X
		NULL};

int calibration_compare_kernel(const void *one, const void *other)
{
	const struct calibration_kernel *a = one, *b = other;
	int order = compare_i64(a->kernel, b->kernel);

	order = order != 0 ? order : compare_i64(a->dtype, b->dtype);
	order = order != 0 ? order : compare_i64(a->width, b->width);
	return order != 0 ? order : compare_i64(a->length, b->length);
}
