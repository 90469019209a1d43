/* Lists of measurements: one row of a table for each says what they hold, what tells two of them
 * apart, and what to say of one that is there twice. */
#include "topologies/calibration_lists.h"

#include <stdio.h>
#include <string.h>

#include "topologies/sorted.h"

enum { DESCRIPTION = 128 };

struct list {
	const char *plural, *map; /* "measured products", "dtype, m, n, k and flops" */
	const char *key;          /* what is there once: "dtype, m, n, k" */
	const struct field *fields;
	size_t size;     /* of one */
	int most;        /* 0: as many as there are */
	size_t items, n; /* offsets in a calibration */
	bool in_place;   /* `items` is the array, not where it is */
	int (*compare)(const void *one, const void *other);
	void (*describe)(const void *item, char text[DESCRIPTION]);
};

/* --- what tells two apart ----------------------------------------------------------------------
 */

static int compare_collective(const void *one, const void *other)
{
	return calibration_compare(one, other);
}

static int compare_product(const void *one, const void *other)
{
	const struct calibration_product *a = one, *b = other;
	int order = compare_i64(a->dtype, b->dtype);

	order = order != 0 ? order : compare_i64(a->m, b->m);
	order = order != 0 ? order : compare_i64(a->n, b->n);
	return order != 0 ? order : compare_i64(a->k, b->k);
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

static int compare_attention(const void *one, const void *other)
{
	const struct calibration_attention *a = one, *b = other;
	int order = compare_i64(a->head_dim, b->head_dim);

	return order != 0 ? order : compare_i64(a->length, b->length);
}

static int compare_step(const void *one, const void *other)
{
	const struct calibration_step *a = one, *b = other;
	int order = compare_i64(a->mlp, b->mlp);

	order = order != 0 ? order : compare_i64(a->dtype, b->dtype);
	return order != 0 ? order : compare_i64(a->threads, b->threads);
}

static void describe_collective(const void *item, char text[DESCRIPTION])
{
	const struct calibration_collective *c = item;

	snprintf(text, DESCRIPTION, "%s over %lld ranks on %lld nodes from %lld bytes",
		collective_kind_names[c->collective], (long long)c->ranks, (long long)c->nodes,
		(long long)c->from_bytes);
}

static void describe_product(const void *item, char text[DESCRIPTION])
{
	const struct calibration_product *p = item;

	snprintf(text, DESCRIPTION, "%s %lld x %lld x %lld", dtype_name(p->dtype), (long long)p->m,
		(long long)p->n, (long long)p->k);
}

static void describe_choice(const void *item, char text[DESCRIPTION])
{
	const struct calibration_choice *c = item;

	snprintf(text, DESCRIPTION, "%s %s %lld x %lld x %lld", product_form_names[c->form],
		dtype_name(c->dtype), (long long)c->m, (long long)c->n, (long long)c->k);
}

static void describe_attention(const void *item, char text[DESCRIPTION])
{
	const struct calibration_attention *a = item;

	snprintf(text, DESCRIPTION, "%lld %lld", (long long)a->head_dim, (long long)a->length);
}

static void describe_kernel(const void *item, char text[DESCRIPTION])
{
	const struct calibration_kernel *k = item;

	snprintf(text, DESCRIPTION, "%s %s %lld %lld", calibration_kernel_names[k->kernel],
		dtype_name(k->dtype), (long long)k->width, (long long)k->length);
}

static void describe_step(const void *item, char text[DESCRIPTION])
{
	const struct calibration_step *s = item;

	snprintf(text, DESCRIPTION, "%s %s %s", step_mlp_names[s->mlp], dtype_name(s->dtype),
		step_threads_names[s->threads]);
}

/* --- the table ---------------------------------------------------------------------------------
 */

enum { COLLECTIVES, PRODUCTS, CHOICES, ATTENTION, KERNELS, STEPS, LISTS };
const char *const calibration_list_names[] = {
	"collectives", "products", "choices", "attention", "kernels", "steps", NULL};

#define LIST(type, name)                                                                           \
	.fields = calibration_##type##_fields, .size = sizeof(struct calibration_##type),          \
	.items = offsetof(struct calibration, name), .n = offsetof(struct calibration, n_##name),  \
	.describe = describe_##type

static const struct list lists[LISTS] = {
	[COLLECTIVES] = {LIST(collective, collectives), .plural = "measured segments",
		.map = "collective, ranks, nodes, latency and bandwidth",
		.key = "collective, ranks, nodes, from", .compare = compare_collective},
	[PRODUCTS] = {LIST(product, products), .plural = "measured products",
		.map = "dtype, m, n, k and flops", .key = "dtype, m, n, k",
		.most = CALIBRATION_PRODUCTS, .compare = compare_product},
	[CHOICES] = {LIST(choice, choices), .plural = "choices",
		.map = "form, dtype, result, m, n, k and algorithm",
		.key = "form, dtype, result, m, n, k", .most = CALIBRATION_CHOICES,
		.compare = compare_choice},
	[ATTENTION] = {LIST(attention, attention), .plural = "ways of attention",
		.map = "head_dim, length and engine", .key = "head_dim, length",
		.most = CALIBRATION_ATTENTION, .compare = compare_attention},
	[KERNELS] = {LIST(kernel, kernels), .plural = "measured kernels",
		.map = "kernel, dtype, width, length and rate",
		.key = "kernel, dtype, width, length", .most = CALIBRATION_KERNELS,
		.compare = calibration_compare_kernel},
	[STEPS] = {LIST(step, steps), .plural = "steps", .map = "mlp, dtype, threads and factors",
		.key = "mlp, dtype, threads", .most = CALIBRATION_STEPS, .in_place = true,
		.compare = compare_step},
};

static int count_of(const struct calibration *calibration, const struct list *list)
{
	int n;

	memcpy(&n, (const char *)calibration + list->n, sizeof(n));
	return n;
}

static const char *items_of(const struct calibration *calibration, const struct list *list)
{
	const char *place = (const char *)calibration + list->items;
	const char *items;

	if (list->in_place)
		return place;
	memcpy(&items, place, sizeof(items));
	return items;
}

/* False, and nothing done, when an equal one is there, or there is no room. */
static bool add(struct calibration *calibration, const struct list *list, const void *item)
{
	int n = count_of(calibration, list);

	if (list->most > 0 && n == list->most)
		return false;
	if (!sorted_insert(
		    (char *)items_of(calibration, list), &n, list->size, item, list->compare))
		return false;
	memcpy((char *)calibration + list->n, &n, sizeof(n));
	return true;
}

bool calibration_add_product(
	struct calibration *calibration, const struct calibration_product *product)
{
	return add(calibration, &lists[PRODUCTS], product);
}

bool calibration_add_choice(
	struct calibration *calibration, const struct calibration_choice *choice)
{
	return add(calibration, &lists[CHOICES], choice);
}

bool calibration_add_attention(
	struct calibration *calibration, const struct calibration_attention *attention)
{
	return add(calibration, &lists[ATTENTION], attention);
}

bool calibration_add_kernel(
	struct calibration *calibration, const struct calibration_kernel *kernel)
{
	return add(calibration, &lists[KERNELS], kernel);
}

bool calibration_add_step(struct calibration *calibration, const struct calibration_step *step)
{
	return add(calibration, &lists[STEPS], step);
}

/* --- files -------------------------------------------------------------------------------------
 */

static void make_room(
	struct arena *arena, struct calibration *calibration, const struct list *list, int n)
{
	void *items = arena_alloc(arena, (size_t)n, list->size);

	if (!list->in_place)
		memcpy((char *)calibration + list->items, &items, sizeof(items));
}

static bool read_item(struct arena *arena, const struct node *node, struct calibration *calibration,
	const struct list *list, struct error *error)
{
	void *item = arena_alloc(arena, 1, list->size);
	char text[DESCRIPTION];

	if (node->kind != NODE_MAP)
		return node_error(node, error, "expected a map with %s", list->map);
	if (!fields_read(list->fields, node, NULL, item, arena, error))
		return false;
	if (add(calibration, list, item))
		return true;
	list->describe(item, text);
	return node_error(node, error, "expected each (%s) once, got %s twice", list->key, text);
}

static bool read_list(struct arena *arena, const struct node *node, struct calibration *calibration,
	const struct list *list, struct error *error)
{
	if (list->most > 0 && (node->kind != NODE_LIST || node->n_children > list->most))
		return node_error(
			node, error, "expected a list of at most %d %s", list->most, list->plural);
	if (node->kind != NODE_LIST)
		return node_error(node, error, "expected a list of %s", list->plural);
	make_room(arena, calibration, list, node->n_children);
	for (int i = 0; i < node->n_children; i++)
		if (!read_item(arena, node->children[i], calibration, list, error))
			return false;
	return true;
}

bool calibration_lists_read(struct arena *arena, const struct node *map,
	struct calibration *calibration, struct error *error)
{
	for (int i = 0; i < LISTS; i++) {
		const struct node *node = node_get(map, calibration_list_names[i]);

		if (node != NULL && !read_list(arena, node, calibration, &lists[i], error))
			return false;
	}
	return true;
}

void calibration_lists_write(const struct calibration *calibration, struct writer *writer)
{
	for (int i = 0; i < LISTS; i++) {
		const struct list *list = &lists[i];
		const char *items = items_of(calibration, list);
		int n = count_of(calibration, list);

		if (n == 0)
			continue;
		writer_begin_list(writer, calibration_list_names[i]);
		for (int j = 0; j < n; j++) {
			writer_begin_map(writer, NULL);
			fields_write(list->fields, items + (size_t)j * list->size, writer);
			writer_end_map(writer);
		}
		writer_end_list(writer);
	}
}

bool calibration_lists_are_empty(const struct calibration *calibration)
{
	for (int i = 0; i < LISTS; i++)
		if (count_of(calibration, &lists[i]) > 0)
			return false;
	return true;
}
