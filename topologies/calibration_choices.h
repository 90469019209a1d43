/* How products and attention are done fastest on a GPU, as calibration.h keeps it. */
#ifndef TOPOLOGIES_CALIBRATION_CHOICES_H
#define TOPOLOGIES_CALIBRATION_CHOICES_H

#include "base/base.h"

/* The products of a layer. */
enum product_form {
	PRODUCT_FORWARD,
	PRODUCT_INPUT_GRADIENT,
	PRODUCT_WEIGHT_GRADIENT,
	PRODUCT_FORMS
};
extern const char *const product_form_names[]; /* "forward", "input_gradient", ... */

/* A way of cuBLASLt's for products of that shape, in numbers of its own (cublasLt.h), that was
 * found to be faster than what it proposes first. */
struct calibration_choice {
	enum product_form form;
	enum dtype dtype, result; /* of the operands, of what is written */
	int64_t m, n, k;
	double gain; /* its speed over the first proposal's */
	int algorithm, tile, stages, split_k, reduction, swizzle, custom, inner_shape, cluster;
};

enum { CALIBRATION_CHOICES = 128 }; /* at most */

/* A way of cuDNN's for attention's forward in bf16 with heads of that size over sequences of that
 * length, in numbers of its own (cudnn_graph.h): it agreed with our kernel, repeated its bits, and
 * was faster. */
struct calibration_attention {
	int64_t head_dim, length;
	double gain; /* its speed over our kernel's */
	int engine, kernel, cluster, stream_k, tile_m, tile_n;
};

enum { CALIBRATION_ATTENTION = 32 }; /* at most */

extern const struct field calibration_choice_fields[];
extern const struct field calibration_attention_fields[];

/* As calibration_add_product does. */
struct calibration;
bool calibration_add_choice(
	struct calibration *calibration, const struct calibration_choice *choice);
bool calibration_add_attention(
	struct calibration *calibration, const struct calibration_attention *attention);

#endif
