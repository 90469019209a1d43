#include "kernels/common/rope_frequency.h"

#include <math.h>

double rope_frequency(const struct rope *rope, int64_t i)
{
	const double pi = 3.14159265358979323846;
	double frequency = pow(rope->theta, -2.0 * (double)i / (double)rope->head_dim);
	double rotations, stretched, blend;

	if (rope->scaling_factor <= 0.0)
		return frequency;
	rotations = rope->original_length * frequency / (2.0 * pi);
	stretched = frequency / rope->scaling_factor;
	if (rotations < rope->low_frequency_factor)
		return stretched;
	if (rotations > rope->high_frequency_factor)
		return frequency;
	blend = (rotations - rope->low_frequency_factor) /
		(rope->high_frequency_factor - rope->low_frequency_factor);
	return (1.0 - blend) * stretched + blend * frequency;
}
