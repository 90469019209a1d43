/* The fastest algorithms for products and attention on a GPU, a part of calibration.h. */
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

/* An algorithm of cuBLASLt, in numbers of cublasLt.h, for products of one shape: it was faster than
 * the one that the library proposes first. */
struct calibration_choice {
	enum product_form form;
	enum dtype dtype, result; /* of the operands, of what is written */
	int64_t m, n, k;
	double gain; /* its speed over the first proposal's */
	int algorithm, tile, stages, split_k, reduction, swizzle, custom, inner_shape, cluster;
};

enum { CALIBRATION_CHOICES = 128 }; /* at most */

enum attention_direction { ATTENTION_IS_FORWARD, ATTENTION_IS_BACKWARD };
extern const char *const attention_direction_names[]; /* "forward", "backward" */

/* An engine configuration of cuDNN, in numbers of cudnn_graph.h, for a pass of attention in bf16
 * with heads of that size over sequences of that length. It agreed with our kernel, repeated its
 * bits, and was faster. */
struct calibration_attention {
	int64_t head_dim, length;
	enum attention_direction pass;
	double gain; /* its speed over our kernel's */
	int engine, kernel, cluster, stream_k, tile_m, tile_n, stages;
	int64_t workspace_bytes; /* of the backward: for a head of a sequence */
};

enum { CALIBRATION_ATTENTION = 32 }; /* at most */

struct calibration;
/* The choice for that backward; NULL: our own kernel computes it. */
const struct calibration_attention *calibration_attention_backward(
	const struct calibration *calibration, int64_t head_dim, int64_t length);
/* Bytes of workspace for one head of one sequence. `shared`: heads share keys; then each head needs
 * memory for its own fp32 gradients of these. */
int64_t calibration_attention_bytes(const struct calibration_attention *attention, bool shared);
/* Bytes to set aside for backward: enough for all heads of all sequences at once, or for as many as
 * fit in ATTENTION_WORKSPACE_BYTES. The heads that share a key stay together; 0: even these do not
 * fit, and our own kernel computes them. */
enum { ATTENTION_WORKSPACE_BYTES = 1216 << 20 }; /* a sequence of 4096 tokens and 32 heads */
int64_t calibration_attention_workspace(const struct calibration_attention *attention,
	int64_t sequences, int64_t heads, int64_t kv_heads);

extern const struct field calibration_choice_fields[];
extern const struct field calibration_attention_fields[];

/* Like calibration_add_product. */
bool calibration_add_choice(
	struct calibration *calibration, const struct calibration_choice *choice);
bool calibration_add_attention(
	struct calibration *calibration, const struct calibration_attention *attention);

#endif
