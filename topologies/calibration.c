/* Reading, writing and looking up what was measured of a machine. */
#include "topologies/calibration.h"
#include "topologies/calibration_lists.h"

const char *const collective_kind_names[] = {
	"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send_recv", NULL};
const char *const product_form_names[] = {"forward", "input_gradient", "weight_gradient", NULL};
const char *const attention_direction_names[] = {"forward", "backward", NULL};
const char *const calibration_kernel_names[] = {
#define X(suffix, name) [KERNEL_##suffix] = name,
	CALIBRATION_KERNEL_KINDS(X)
#undef X
		NULL};

#define OPTIONAL     (FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO)
#define KEY          (FIELD_KEY | FIELD_REQUIRED)
#define KEY_POSITIVE (KEY | FIELD_POSITIVE)

const struct field calibration_fields[] = {
	FIELD_BOOL(struct calibration, measured, "measured", FIELD_OMIT_ZERO),
	FIELD_STRING(struct calibration, date, "date", FIELD_OMIT_ZERO),
	FIELD_STRING(struct calibration, provenance, "provenance", FIELD_OMIT_ZERO),
	FIELD_FLOPS(struct calibration, gemm_flops, "gemm_flops", OPTIONAL),
	FIELD_DOUBLE(struct calibration, gemm_half_m, "gemm_half_m", OPTIONAL),
	FIELD_DOUBLE(struct calibration, gemm_half_n, "gemm_half_n", OPTIONAL),
	FIELD_DOUBLE(struct calibration, gemm_half_k, "gemm_half_k", OPTIONAL),
	FIELD_FLOPS(struct calibration, bf16_gemm_flops, "bf16_gemm_flops", OPTIONAL),
	FIELD_DOUBLE(struct calibration, bf16_gemm_half_m, "bf16_gemm_half_m", OPTIONAL),
	FIELD_DOUBLE(struct calibration, bf16_gemm_half_n, "bf16_gemm_half_n", OPTIONAL),
	FIELD_DOUBLE(struct calibration, bf16_gemm_half_k, "bf16_gemm_half_k", OPTIONAL),
	FIELD_DOUBLE(struct calibration, threads_speedup, "threads_speedup", OPTIONAL),
	FIELD_DOUBLE(struct calibration, sustained_clock, "sustained_clock", OPTIONAL),
	FIELD_DOUBLE(struct calibration, sustained_spread, "sustained_spread", OPTIONAL),
	FIELD_FLOPS(
		struct calibration, attention_forward_flops, "attention_forward_flops", OPTIONAL),
	FIELD_FLOPS(
		struct calibration, attention_backward_flops, "attention_backward_flops", OPTIONAL),
	FIELD_BANDWIDTH(struct calibration, memory_bandwidth, "memory_bandwidth", OPTIONAL),
	FIELD_BANDWIDTH(
		struct calibration, memory_bandwidth_shared, "memory_bandwidth_shared", OPTIONAL),
	FIELD_TIME(struct calibration, kernel_overhead, "kernel_overhead", OPTIONAL),
	FIELD_TIME(struct calibration, host_overhead, "host_overhead", OPTIONAL),
	FIELD_DOUBLE(struct calibration, host_factor, "host_factor", OPTIONAL),
	FIELD_BANDWIDTH(struct calibration, optimizer_bandwidth, "optimizer_bandwidth", OPTIONAL),
	FIELD_BANDWIDTH(struct calibration, optimizer_bandwidth_shared,
		"optimizer_bandwidth_shared", OPTIONAL),
	FIELD_DOUBLE(struct calibration, activation_rate, "activation_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, bf16_activation_rate, "bf16_activation_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, loss_rate, "loss_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, bf16_loss_rate, "bf16_loss_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, gradient_norm_rate, "gradient_norm_rate", OPTIONAL),
	FIELD_INT(struct calibration, choices_library, "choices_library", OPTIONAL),
	FIELD_INT(struct calibration, attention_library, "attention_library", OPTIONAL),
	FIELD_DOUBLE(struct calibration, compute_spread, "compute_spread", OPTIONAL),
	FIELD_DOUBLE(struct calibration, collective_spread, "collective_spread", OPTIONAL),
	FIELD_DOUBLE(struct calibration, host_spread, "host_spread", OPTIONAL),
	FIELD_DOUBLE(struct calibration, residual_spread, "residual_spread", OPTIONAL),
	FIELD_DOUBLE(struct calibration, compute_best, "compute_best", OPTIONAL),
	FIELD_DOUBLE(struct calibration, collective_best, "collective_best", OPTIONAL),
	FIELD_DOUBLE(struct calibration, step_p95, "step_p95", OPTIONAL),
	FIELD_TIME(struct calibration, yardstick, "yardstick", OPTIONAL),
	FIELD_END,
};

const struct field calibration_collective_fields[] = {
	FIELD_ENUM(struct calibration_collective, collective, "collective", KEY,
		collective_kind_names),
	FIELD_INT(struct calibration_collective, ranks, "ranks", KEY_POSITIVE),
	FIELD_INT(struct calibration_collective, nodes, "nodes", KEY_POSITIVE),
	FIELD_BYTES(
		struct calibration_collective, from_bytes, "from", FIELD_KEY | FIELD_NOT_NEGATIVE),
	FIELD_TIME(struct calibration_collective, latency, "latency",
		FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_BANDWIDTH(struct calibration_collective, bandwidth, "bandwidth",
		FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_END,
};

const struct field calibration_product_fields[] = {
	FIELD_ENUM(struct calibration_product, dtype, "dtype", KEY, dtype_names),
	FIELD_INT(struct calibration_product, m, "m", KEY_POSITIVE),
	FIELD_INT(struct calibration_product, n, "n", KEY_POSITIVE),
	FIELD_INT(struct calibration_product, k, "k", KEY_POSITIVE),
	FIELD_FLOPS(struct calibration_product, flops, "flops", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_FLOPS(struct calibration_product, chosen_flops, "chosen_flops", OPTIONAL),
	FIELD_END,
};

#define NUMBER(name) FIELD_INT32(struct calibration_choice, name, #name, OPTIONAL)
const struct field calibration_choice_fields[] = {
	FIELD_ENUM(struct calibration_choice, form, "form", KEY, product_form_names),
	FIELD_ENUM(struct calibration_choice, dtype, "dtype", KEY, dtype_names),
	FIELD_ENUM(struct calibration_choice, result, "result", KEY, dtype_names),
	FIELD_INT(struct calibration_choice, m, "m", KEY_POSITIVE),
	FIELD_INT(struct calibration_choice, n, "n", KEY_POSITIVE),
	FIELD_INT(struct calibration_choice, k, "k", KEY_POSITIVE),
	FIELD_DOUBLE(struct calibration_choice, gain, "gain", OPTIONAL),
	FIELD_INT32(struct calibration_choice, algorithm, "algorithm",
		FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	NUMBER(tile),
	NUMBER(stages),
	NUMBER(split_k),
	NUMBER(reduction),
	NUMBER(swizzle),
	NUMBER(custom),
	NUMBER(inner_shape),
	NUMBER(cluster),
	FIELD_END,
};
#undef NUMBER

#define NUMBER(name) FIELD_INT32(struct calibration_attention, name, #name, OPTIONAL)
const struct field calibration_attention_fields[] = {
	FIELD_INT(struct calibration_attention, head_dim, "head_dim", KEY_POSITIVE),
	FIELD_INT(struct calibration_attention, length, "length", KEY_POSITIVE),
	FIELD_ENUM(struct calibration_attention, pass, "pass", FIELD_KEY | OPTIONAL,
		attention_direction_names),
	FIELD_DOUBLE(struct calibration_attention, gain, "gain", OPTIONAL),
	FIELD_INT32(struct calibration_attention, engine, "engine",
		FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	NUMBER(kernel),
	NUMBER(cluster),
	NUMBER(stream_k),
	NUMBER(tile_m),
	NUMBER(tile_n),
	NUMBER(stages),
	FIELD_BYTES(struct calibration_attention, workspace_bytes, "workspace", OPTIONAL),
	FIELD_END,
};
#undef NUMBER

const struct field calibration_kernel_fields[] = {
	FIELD_ENUM(struct calibration_kernel, kernel, "kernel", KEY, calibration_kernel_names),
	FIELD_ENUM(struct calibration_kernel, dtype, "dtype", KEY, dtype_names),
	FIELD_INT(struct calibration_kernel, width, "width", FIELD_KEY | OPTIONAL),
	FIELD_INT(struct calibration_kernel, length, "length", FIELD_KEY | OPTIONAL),
	FIELD_DOUBLE(struct calibration_kernel, rate, "rate", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_END,
};

const struct field calibration_step_fields[] = {
	FIELD_ENUM(struct calibration_step, mlp, "mlp", KEY, step_mlp_names),
	FIELD_ENUM(struct calibration_step, dtype, "dtype", KEY, dtype_names),
	FIELD_ENUM(struct calibration_step, threads, "threads", KEY, step_threads_names),
#define X(suffix, name)                                                                            \
	FIELD_DOUBLE(struct calibration_step, factors[STEP_##suffix], name,                        \
		FIELD_POSITIVE | FIELD_OMIT_ZERO),
	STEP_WORKS(X)
#undef X
		FIELD_END,
};

static int compare_i64(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* The order without from_bytes: which curve a segment belongs to. */
static int compare_curve(
	const struct calibration_collective *a, const struct calibration_collective *b)
{
	int order = compare_i64(a->collective, b->collective);

	if (order == 0)
		order = compare_i64(a->ranks, b->ranks);
	return order != 0 ? order : compare_i64(a->nodes, b->nodes);
}

int calibration_compare(
	const struct calibration_collective *a, const struct calibration_collective *b)
{
	int order = compare_curve(a, b);

	return order != 0 ? order : compare_i64(a->from_bytes, b->from_bytes);
}

bool calibration_read(struct arena *arena, const struct node *map, struct calibration *calibration,
	struct error *error)
{
	if (map->kind != NODE_MAP)
		return node_error(map, error, "expected a calibration (a map)");
	return fields_read(calibration_fields, map, calibration_list_names, calibration, arena,
		       error) &&
	       calibration_lists_read(arena, map, calibration, error);
}

void calibration_write(const struct calibration *calibration, struct writer *writer)
{
	fields_write(calibration_fields, calibration, writer);
	calibration_lists_write(calibration, writer);
}

double calibration_gemm_flops(const struct calibration *calibration, enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? calibration->bf16_gemm_flops : calibration->gemm_flops;
}

bool calibration_is_empty(const struct calibration *calibration)
{
	static const struct calibration nothing;

	return calibration_lists_are_empty(calibration) &&
	       fields_equal(calibration_fields, calibration, &nothing);
}

const struct calibration_collective *calibration_find(const struct calibration *calibration,
	enum collective_kind collective, int64_t ranks, int64_t nodes, int64_t bytes)
{
	const struct calibration_collective key = {
		.collective = collective, .ranks = ranks, .nodes = nodes, .from_bytes = bytes};
	const struct calibration_collective *segments = calibration->collectives;
	int low = 0, high = calibration->n_collectives;

	/* The first segment that is after the key; the one before it is the one that fits. */
	while (low < high) {
		int middle = low + (high - low) / 2;

		if (calibration_compare(&segments[middle], &key) > 0)
			high = middle;
		else
			low = middle + 1;
	}
	if (low > 0 && compare_curve(&segments[low - 1], &key) == 0)
		return &segments[low - 1];
	/* Smaller than the smallest measured size: the first segment of the curve still fits best.
	 */
	if (low < calibration->n_collectives && compare_curve(&segments[low], &key) == 0)
		return &segments[low];
	return NULL;
}
