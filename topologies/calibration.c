/* Reading, writing and looking up what was measured of a machine. */
#include "topologies/calibration.h"
#include "topologies/sorted.h"

const char *const collective_kind_names[] = {"all_gather", "reduce_scatter", "all_reduce", NULL};
const char *const product_form_names[] = {"forward", "input_gradient", "weight_gradient", NULL};

#define OPTIONAL (FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO)

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
	FIELD_BANDWIDTH(struct calibration, optimizer_bandwidth, "optimizer_bandwidth", OPTIONAL),
	FIELD_BANDWIDTH(struct calibration, optimizer_bandwidth_shared,
		"optimizer_bandwidth_shared", OPTIONAL),
	FIELD_DOUBLE(struct calibration, activation_rate, "activation_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, bf16_activation_rate, "bf16_activation_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, loss_rate, "loss_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, bf16_loss_rate, "bf16_loss_rate", OPTIONAL),
	FIELD_DOUBLE(struct calibration, gradient_norm_rate, "gradient_norm_rate", OPTIONAL),
	FIELD_INT(struct calibration, choices_library, "choices_library", OPTIONAL),
	FIELD_DOUBLE(struct calibration, compute_spread, "compute_spread", OPTIONAL),
	FIELD_DOUBLE(struct calibration, collective_spread, "collective_spread", OPTIONAL),
	FIELD_DOUBLE(struct calibration, host_spread, "host_spread", OPTIONAL),
	FIELD_DOUBLE(struct calibration, residual_spread, "residual_spread", OPTIONAL),
	FIELD_END,
};

const struct field calibration_collective_fields[] = {
	FIELD_ENUM(struct calibration_collective, collective, "collective", FIELD_REQUIRED,
		collective_kind_names),
	FIELD_INT(struct calibration_collective, ranks, "ranks", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct calibration_collective, nodes, "nodes", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_BYTES(struct calibration_collective, from_bytes, "from", FIELD_NOT_NEGATIVE),
	FIELD_TIME(struct calibration_collective, latency, "latency",
		FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_BANDWIDTH(struct calibration_collective, bandwidth, "bandwidth",
		FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_END,
};

const struct field calibration_product_fields[] = {
	FIELD_ENUM(struct calibration_product, dtype, "dtype", FIELD_REQUIRED, dtype_names),
	FIELD_INT(struct calibration_product, m, "m", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct calibration_product, n, "n", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct calibration_product, k, "k", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_FLOPS(struct calibration_product, flops, "flops", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_FLOPS(struct calibration_product, chosen_flops, "chosen_flops", OPTIONAL),
	FIELD_END,
};

#define NUMBER(name) FIELD_INT(struct calibration_choice, name, #name, OPTIONAL)
const struct field calibration_choice_fields[] = {
	FIELD_ENUM(struct calibration_choice, form, "form", FIELD_REQUIRED, product_form_names),
	FIELD_ENUM(struct calibration_choice, dtype, "dtype", FIELD_REQUIRED, dtype_names),
	FIELD_ENUM(struct calibration_choice, result, "result", FIELD_REQUIRED, dtype_names),
	FIELD_INT(struct calibration_choice, m, "m", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct calibration_choice, n, "n", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct calibration_choice, k, "k", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_DOUBLE(struct calibration_choice, gain, "gain", OPTIONAL),
	FIELD_INT(struct calibration_choice, algorithm, "algorithm",
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

const struct field calibration_kernel_fields[] = {
	FIELD_ENUM(struct calibration_kernel, kernel, "kernel", FIELD_REQUIRED,
		calibration_kernel_names),
	FIELD_ENUM(struct calibration_kernel, dtype, "dtype", FIELD_REQUIRED, dtype_names),
	FIELD_INT(struct calibration_kernel, width, "width", OPTIONAL),
	FIELD_INT(struct calibration_kernel, length, "length", OPTIONAL),
	FIELD_DOUBLE(struct calibration_kernel, rate, "rate", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_END,
};

const struct field calibration_step_fields[] = {
	FIELD_ENUM(struct calibration_step, mlp, "mlp", FIELD_REQUIRED, step_mlp_names),
	FIELD_ENUM(struct calibration_step, dtype, "dtype", FIELD_REQUIRED, dtype_names),
	FIELD_ENUM(struct calibration_step, threads, "threads", FIELD_REQUIRED, step_threads_names),
#define X(suffix, name)                                                                            \
	FIELD_DOUBLE(struct calibration_step, factors[STEP_##suffix], name,                        \
		FIELD_POSITIVE | FIELD_OMIT_ZERO),
	STEP_WORKS(X)
#undef X
		FIELD_END,
};

/* The order without from_bytes: which curve a piece belongs to. */
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

/* Puts `piece` where it belongs among the first `count`; false when an equal one is there. People
 * edit files, so the order in the file is not relied upon. */
static bool insert_piece(struct calibration_collective *pieces, int count,
	const struct calibration_collective *piece)
{
	int at = count;

	while (at > 0 && calibration_compare(&pieces[at - 1], piece) > 0) {
		pieces[at] = pieces[at - 1];
		at--;
	}
	pieces[at] = *piece;
	return at == 0 || calibration_compare(&pieces[at - 1], piece) != 0;
}

static bool read_pieces(struct arena *arena, const struct node *list,
	struct calibration *calibration, struct error *error)
{
	if (list->kind != NODE_LIST)
		return node_error(list, error, "expected a list of measured pieces");
	calibration->collectives =
		ARENA_ARRAY(arena, struct calibration_collective, list->n_children);
	for (int i = 0; i < list->n_children; i++) {
		const struct node *item = list->children[i];
		struct calibration_collective piece = {0};

		if (item->kind != NODE_MAP)
			return node_error(item, error,
				"expected a map with collective, ranks, nodes, "
				"latency and "
				"bandwidth");
		if (!fields_read(calibration_collective_fields, item, NULL, &piece, arena, error))
			return false;
		if (!insert_piece(calibration->collectives, i, &piece))
			return node_error(item, error,
				"expected each (collective, ranks, nodes, from) once, "
				"got %s "
				"over %lld ranks on %lld nodes from %lld bytes twice",
				collective_kind_names[piece.collective], (long long)piece.ranks,
				(long long)piece.nodes, (long long)piece.from_bytes);
	}
	calibration->n_collectives = list->n_children;
	return true;
}

static int compare_product(const void *one, const void *other)
{
	const struct calibration_product *a = one, *b = other;
	int order = compare_i64(a->dtype, b->dtype);

	order = order != 0 ? order : compare_i64(a->m, b->m);
	order = order != 0 ? order : compare_i64(a->n, b->n);
	return order != 0 ? order : compare_i64(a->k, b->k);
}

bool calibration_add_product(
	struct calibration *calibration, const struct calibration_product *product)
{
	return sorted_insert(calibration->products, &calibration->n_products, sizeof(*product),
		product, compare_product);
}

static bool read_products(struct arena *arena, const struct node *list,
	struct calibration *calibration, struct error *error)
{
	if (list->kind != NODE_LIST || list->n_children > CALIBRATION_PRODUCTS)
		return node_error(list, error, "expected a list of at most %d measured products",
			CALIBRATION_PRODUCTS);
	calibration->products = ARENA_ARRAY(arena, struct calibration_product, list->n_children);
	for (int i = 0; i < list->n_children; i++) {
		const struct node *item = list->children[i];
		struct calibration_product product = {0};

		if (item->kind != NODE_MAP)
			return node_error(
				item, error, "expected a map with dtype, m, n, k and flops");
		if (!fields_read(calibration_product_fields, item, NULL, &product, arena, error))
			return false;
		if (!calibration_add_product(calibration, &product))
			return node_error(item, error,
				"expected each (dtype, m, n, k) once, got %s %lld x %lld x %lld "
				"twice",
				dtype_name(product.dtype), (long long)product.m,
				(long long)product.n, (long long)product.k);
	}
	return true;
}

static bool read_kernels(struct arena *arena, const struct node *list,
	struct calibration *calibration, struct error *error)
{
	if (list->kind != NODE_LIST || list->n_children > CALIBRATION_KERNELS)
		return node_error(list, error, "expected a list of at most %d measured kernels",
			CALIBRATION_KERNELS);
	calibration->kernels = ARENA_ARRAY(arena, struct calibration_kernel, list->n_children);
	for (int i = 0; i < list->n_children; i++) {
		const struct node *item = list->children[i];
		struct calibration_kernel kernel = {0};

		if (item->kind != NODE_MAP)
			return node_error(item, error,
				"expected a map with kernel, dtype, width, length and rate");
		if (!fields_read(calibration_kernel_fields, item, NULL, &kernel, arena, error))
			return false;
		if (!calibration_add_kernel(calibration, &kernel))
			return node_error(item, error,
				"expected each (kernel, dtype, width, length) once, got %s %s %lld "
				"%lld twice",
				calibration_kernel_names[kernel.kernel], dtype_name(kernel.dtype),
				(long long)kernel.width, (long long)kernel.length);
	}
	return true;
}

static bool read_steps(struct arena *arena, const struct node *list,
	struct calibration *calibration, struct error *error)
{
	if (list->kind != NODE_LIST || list->n_children > CALIBRATION_STEPS)
		return node_error(
			list, error, "expected a list of at most %d steps", CALIBRATION_STEPS);
	for (int i = 0; i < list->n_children; i++) {
		const struct node *item = list->children[i];
		struct calibration_step step = {0};

		if (item->kind != NODE_MAP)
			return node_error(
				item, error, "expected a map with mlp, dtype, threads and factors");
		if (!fields_read(calibration_step_fields, item, NULL, &step, arena, error))
			return false;
		if (!calibration_add_step(calibration, &step))
			return node_error(item, error,
				"expected each (mlp, dtype, threads) once, got %s %s %s twice",
				step_mlp_names[step.mlp], dtype_name(step.dtype),
				step_threads_names[step.threads]);
	}
	return true;
}

static int compare_choice(const void *one, const void *other)
{
	const struct calibration_choice *a = one, *b = other;
	int order = compare_i64(a->form, b->form);

	order = order != 0 ? order : compare_i64(a->dtype, b->dtype);
	order = order != 0 ? order : compare_i64(a->result, b->result);
	order = order != 0 ? order : compare_i64(a->m, b->m);
	order = order != 0 ? order : compare_i64(a->n, b->n);
	return order != 0 ? order : compare_i64(a->k, b->k);
}

bool calibration_add_choice(
	struct calibration *calibration, const struct calibration_choice *choice)
{
	return sorted_insert(calibration->choices, &calibration->n_choices, sizeof(*choice), choice,
		compare_choice);
}

static bool read_choices(struct arena *arena, const struct node *list,
	struct calibration *calibration, struct error *error)
{
	if (list->kind != NODE_LIST || list->n_children > CALIBRATION_CHOICES)
		return node_error(
			list, error, "expected a list of at most %d choices", CALIBRATION_CHOICES);
	calibration->choices = ARENA_ARRAY(arena, struct calibration_choice, list->n_children);
	for (int i = 0; i < list->n_children; i++) {
		const struct node *item = list->children[i];
		struct calibration_choice choice = {0};

		if (item->kind != NODE_MAP)
			return node_error(item, error,
				"expected a map with form, dtype, result, m, n, k and algorithm");
		if (!fields_read(calibration_choice_fields, item, NULL, &choice, arena, error))
			return false;
		if (!calibration_add_choice(calibration, &choice))
			return node_error(item, error,
				"expected each (form, dtype, result, m, n, k) once, got %s %s "
				"%lld x %lld x %lld twice",
				product_form_names[choice.form], dtype_name(choice.dtype),
				(long long)choice.m, (long long)choice.n, (long long)choice.k);
	}
	return true;
}

bool calibration_read(struct arena *arena, const struct node *map, struct calibration *calibration,
	struct error *error)
{
	static const char *const others[] = {
		"collectives", "products", "choices", "kernels", "steps", NULL};
	const struct node *list = node_get(map, "collectives");
	const struct node *products = node_get(map, "products");
	const struct node *choices = node_get(map, "choices");
	const struct node *kernels = node_get(map, "kernels");
	const struct node *steps = node_get(map, "steps");

	if (map->kind != NODE_MAP)
		return node_error(map, error, "expected a calibration (a map)");
	if (!fields_read(calibration_fields, map, others, calibration, arena, error))
		return false;
	return (list == NULL || read_pieces(arena, list, calibration, error)) &&
	       (products == NULL || read_products(arena, products, calibration, error)) &&
	       (choices == NULL || read_choices(arena, choices, calibration, error)) &&
	       (kernels == NULL || read_kernels(arena, kernels, calibration, error)) &&
	       (steps == NULL || read_steps(arena, steps, calibration, error));
}

static void write_list(struct writer *writer, const char *key, const struct field *fields,
	const void *items, int n, size_t size)
{
	if (n == 0)
		return;
	writer_begin_list(writer, key);
	for (int i = 0; i < n; i++) {
		writer_begin_map(writer, NULL);
		fields_write(fields, (const char *)items + (size_t)i * size, writer);
		writer_end_map(writer);
	}
	writer_end_list(writer);
}

void calibration_write(const struct calibration *calibration, struct writer *writer)
{
	fields_write(calibration_fields, calibration, writer);
	write_list(writer, "collectives", calibration_collective_fields, calibration->collectives,
		calibration->n_collectives, sizeof(*calibration->collectives));
	write_list(writer, "products", calibration_product_fields, calibration->products,
		calibration->n_products, sizeof(*calibration->products));
	write_list(writer, "choices", calibration_choice_fields, calibration->choices,
		calibration->n_choices, sizeof(*calibration->choices));
	write_list(writer, "kernels", calibration_kernel_fields, calibration->kernels,
		calibration->n_kernels, sizeof(*calibration->kernels));
	write_list(writer, "steps", calibration_step_fields, calibration->steps,
		calibration->n_steps, sizeof(*calibration->steps));
}

double calibration_gemm_flops(const struct calibration *calibration, enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? calibration->bf16_gemm_flops : calibration->gemm_flops;
}

bool calibration_is_empty(const struct calibration *calibration)
{
	static const struct calibration nothing;

	return calibration->n_collectives == 0 && calibration->n_products == 0 &&
	       calibration->n_choices == 0 && calibration->n_kernels == 0 &&
	       calibration->n_steps == 0 && fields_equal(calibration_fields, calibration, &nothing);
}

const struct calibration_collective *calibration_find(const struct calibration *calibration,
	enum collective_kind collective, int64_t ranks, int64_t nodes, int64_t bytes)
{
	const struct calibration_collective key = {
		.collective = collective, .ranks = ranks, .nodes = nodes, .from_bytes = bytes};
	const struct calibration_collective *pieces = calibration->collectives;
	int low = 0, high = calibration->n_collectives;

	/* The first piece that is after the key; the one before it is the one that fits. */
	while (low < high) {
		int middle = low + (high - low) / 2;

		if (calibration_compare(&pieces[middle], &key) > 0)
			high = middle;
		else
			low = middle + 1;
	}
	if (low > 0 && compare_curve(&pieces[low - 1], &key) == 0)
		return &pieces[low - 1];
	/* Smaller than the smallest measured size: the first piece of the curve still fits best. */
	if (low < calibration->n_collectives && compare_curve(&pieces[low], &key) == 0)
		return &pieces[low];
	return NULL;
}
