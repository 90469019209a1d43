/* The frequencies of rotary embeddings, one formula for every table. */
#ifndef KERNELS_ROPE_FREQUENCY_H
#define KERNELS_ROPE_FREQUENCY_H

#include "kernels/common/arguments.h"

/* Radians per position of element pair i: theta^(-2i/head_dim), and with scaling_factor > 0 Llama
 * 3's rule (transformers, modeling_rope_utils, "llama3"): wavelengths above original_length /
 * low_frequency_factor are stretched by scaling_factor, those below original_length /
 * high_frequency_factor stay, the ones between are blended linearly in original_length/wavelength.
 */
double rope_frequency(const struct rope *rope, int64_t i);

#endif
