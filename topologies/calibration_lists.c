/* Lists of measurements, in the order of their key fields and each once: one row of a table says
 * what a list is called and where it is; the rest is in the fields of its items. */
#include "topologies/calibration_lists.h"

#include <string.h>

struct list {
	const char *plural; /* "measured products" */
	const struct field *fields;
	size_t size;     /* of one */
	int most;        /* 0: as many as there are */
	size_t items, n; /* offsets in a calibration */
	bool in_place;   /* `items` is the array, not where it is */
};

/* --- the table ---------------------------------------------------------------------------------
 */

enum { COLLECTIVES, PRODUCTS, CHOICES, ATTENTION, KERNELS, STEPS, LISTS };
const char *const calibration_list_names[] = {
	"collectives", "products", "choices", "attention", "kernels", "steps", NULL};

#define LIST(type, name)                                                                           \
	.fields = calibration_##type##_fields, .size = sizeof(struct calibration_##type),          \
	.items = offsetof(struct calibration, name), .n = offsetof(struct calibration, n_##name)

static const struct list lists[LISTS] = {
	[COLLECTIVES] = {LIST(collective, collectives), .plural = "measured segments"},
	[PRODUCTS] = {LIST(product, products), .plural = "measured products",
		.most = CALIBRATION_PRODUCTS},
	[CHOICES] = {LIST(choice, choices), .plural = "choices", .most = CALIBRATION_CHOICES},
	[ATTENTION] = {LIST(attention, attention), .plural = "ways of attention",
		.most = CALIBRATION_ATTENTION},
	[KERNELS] = {LIST(kernel, kernels), .plural = "measured kernels",
		.most = CALIBRATION_KERNELS},
	[STEPS] = {LIST(step, steps), .plural = "steps", .most = CALIBRATION_STEPS,
		.in_place = true},
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

/* Puts the item where it belongs. False, and nothing done, when an equal one is there, or there is
 * no room. */
static bool add(struct calibration *calibration, const struct list *list, const void *item)
{
	int n = count_of(calibration, list), order = -1;
	char *at = (char *)items_of(calibration, list) + (size_t)n * list->size;
	size_t behind = 0;

	if (list->most > 0 && n == list->most)
		return false;
	for (int i = n; i > 0; i--, at -= list->size, behind += list->size) {
		order = fields_order(list->fields, at - list->size, item);
		if (order <= 0)
			break;
	}
	if (n > 0 && order == 0)
		return false;
	memmove(at + list->size, at, behind);
	memcpy(at, item, list->size);
	n++;
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

const struct calibration_attention *calibration_attention_backward(
	const struct calibration *calibration, int64_t head_dim, int64_t length)
{
	for (int i = 0; i < calibration->n_attention; i++) {
		const struct calibration_attention *a = &calibration->attention[i];

		if (a->pass == ATTENTION_IS_BACKWARD && a->head_dim == head_dim &&
			a->length == length)
			return a;
	}
	return NULL;
}

int64_t calibration_attention_bytes(const struct calibration_attention *attention, bool shared)
{
	int64_t gradients = 2 * attention->length * attention->head_dim * (int64_t)sizeof(float);

	return attention->workspace_bytes + (shared ? gradients : 0);
}

int64_t calibration_attention_workspace(const struct calibration_attention *attention,
	int64_t sequences, int64_t heads, int64_t kv_heads)
{
	int64_t group = max_i64(
		1, heads / kv_heads * calibration_attention_bytes(attention, heads != kv_heads));

	return group * min_i64(ATTENTION_WORKSPACE_BYTES / group, sequences * kv_heads);
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

/* "dtype, m, n", of the fields that have that flag. */
static const char *names_of(const struct field *fields, unsigned flag, struct arena *arena)
{
	const char *names = "";

	for (; fields->name != NULL; fields++)
		if (fields->flags & flag)
			names = arena_printf(
				arena, "%s%s%s", names, names[0] != '\0' ? ", " : "", fields->name);
	return names;
}

static bool read_item(struct arena *arena, const struct node *node, struct calibration *calibration,
	const struct list *list, struct error *error)
{
	void *item = arena_alloc(arena, 1, list->size);
	struct text text = {0};

	if (node->kind != NODE_MAP)
		return node_error(node, error, "expected a map with %s",
			names_of(list->fields, FIELD_REQUIRED, arena));
	if (!fields_read(list->fields, node, NULL, item, arena, error))
		return false;
	if (add(calibration, list, item))
		return true;
	for (const struct field *field = list->fields; field->name != NULL; field++) {
		if (!(field->flags & FIELD_KEY))
			continue;
		text_add(&text, text.length > 0 ? " " : "");
		fields_print_one(field, item, &text);
	}
	node_error(node, error, "expected each (%s) once, got %s twice",
		names_of(list->fields, FIELD_KEY, arena), text_string(&text));
	text_finish(&text);
	return false;
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
