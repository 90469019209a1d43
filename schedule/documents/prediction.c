#include "schedule/documents/prediction.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "topologies/topologies.h"

const char *const fits_names[] = {"yes", "tight", "no", NULL};

/* Keys carry their units, so that numbers are plain in YAML as in JSON. Reading and writing walk
 * the same tables, in the order of the document. */

#define COUNT(member, name)  FIELD_INT(struct prediction, member, name, FIELD_NOT_NEGATIVE)
#define NUMBER(member, name) FIELD_DOUBLE(struct prediction, member, name, FIELD_NOT_NEGATIVE)
/* A figure that may be unknown is left out, not written as zero. */
#define IF_KNOWN(member, name)                                                                     \
	FIELD_DOUBLE(struct prediction, member, name, FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO)

static const struct field answer_fields[] = {
	FIELD_STRING(struct prediction, schedule_digest, "schedule_digest", FIELD_REQUIRED),
	FIELD_ENUM(struct prediction, fits, "fits", FIELD_REQUIRED, fits_names),
	COUNT(memory_limit_bytes, "memory_limit_bytes"),
	FIELD_DOUBLE(
		struct prediction, step_time, "step_time_s", FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	NUMBER(tokens_per_s_per_gpu, "tokens_per_s_per_gpu"), IF_KNOWN(mfu, "mfu"),
	IF_KNOWN(mfu_6n, "mfu_6n"), IF_KNOWN(mfu_causal, "mfu_causal"), IF_KNOWN(hfu, "hfu"),
	IF_KNOWN(peak_flops, "peak_flops"),
	FIELD_STRING(struct prediction, peak_name, "peak_name", 0), FIELD_END};

static const struct field model_states_fields[] = {COUNT(model_states_parameters, "parameters"),
	COUNT(model_states_gradients, "gradients"),
	COUNT(model_states_optimizer_state, "optimizer_state"), FIELD_END};

static const struct field peak_fields[] = {COUNT(peak_allocated_bytes, "peak_allocated_bytes"),
	FIELD_INT(struct prediction, peak_active_bytes, "peak_active_bytes",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	COUNT(peak_reserved_bytes, "peak_reserved_bytes"),
	FIELD_INT(struct prediction, places_bytes, "places_bytes",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	IF_KNOWN(allocator_retries, "allocator_retries"),
	FIELD_INT(struct prediction, peak_memory_bytes, "peak_memory_bytes",
		FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_INT(struct prediction, peak_wanted_bytes, "peak_wanted_bytes",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_INT(struct prediction, ledger_peak_bytes, "ledger_peak_bytes",
		FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_INT(struct prediction, ledger_host_peak_bytes, "ledger_host_peak_bytes",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_STRING(struct prediction, peak_at, "peak_at", 0),
	FIELD_INT32(struct prediction, peak_op, "peak_op", 0), FIELD_END};

/* These are the members of an int64_t[CATEGORY_COUNT]. */
static const struct field category_fields[] = {
#define X(suffix, key)                                                                             \
	{key, FIELD_TYPE_INT, CATEGORY_##suffix * sizeof(int64_t), FIELD_NOT_NEGATIVE, NULL},
	CATEGORIES(X)
#undef X
		FIELD_END};

static const struct field host_usage_fields[] = {COUNT(host_memory_bytes, "host_memory_bytes"),
	FIELD_INT(struct prediction, host_memory_limit_bytes, "host_memory_limit_bytes",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_END};

int64_t prediction_needed_bytes(const struct prediction *prediction)
{
	if (prediction->places_bytes > 0)
		return prediction->peak_memory_bytes;
	return prediction->peak_memory_bytes - prediction->peak_reserved_bytes +
	       prediction->peak_allocated_bytes;
}

int64_t prediction_wanted_bytes(const struct prediction *prediction)
{
	return max_i64(prediction->peak_memory_bytes, prediction->peak_wanted_bytes);
}

int64_t prediction_missing_bytes(const struct prediction *prediction)
{
	int64_t needed = prediction_needed_bytes(prediction);
	return needed > prediction->memory_limit_bytes ? needed : prediction->peak_memory_bytes;
}

bool prediction_overflows_host(const struct prediction *prediction)
{
	return prediction->host_memory_limit_bytes > 0 &&
	       prediction->host_memory_bytes > prediction->host_memory_limit_bytes;
}

int64_t prediction_excess_bytes(const struct prediction *prediction)
{
	int64_t device = prediction->peak_memory_bytes - prediction->memory_limit_bytes;
	int64_t host = prediction->host_memory_bytes - prediction->host_memory_limit_bytes;
	return prediction_overflows_host(prediction) ? max_i64(device, host) : device;
}

static const struct field time_fields[] = {NUMBER(time.compute, "compute"),
	NUMBER(time.all_gather, "all_gather"), NUMBER(time.reduce_scatter, "reduce_scatter"),
	NUMBER(time.all_reduce, "all_reduce"), NUMBER(time.copy, "copy"),
	NUMBER(time.optimizer, "optimizer"),
	NUMBER(time.exposed_communication, "exposed_communication"),
	IF_KNOWN(time.data_loading, "data_loading"), IF_KNOWN(time.data_wait, "data_wait"),
	IF_KNOWN(time.unaligned_head, "unaligned_head"), IF_KNOWN(time.allocator, "allocator"),
	IF_KNOWN(time.all_to_all, "all_to_all"), IF_KNOWN(time.messages, "messages"),
	IF_KNOWN(time.bubble, "bubble"), FIELD_END};

static const struct field wire_fields[] = {NUMBER(wire_bytes_per_rank, "per_rank"),
	NUMBER(wire_bytes_node_egress, "node_egress"), IF_KNOWN(wire_bytes_rows, "rows"),
	FIELD_END};

static const struct field collective_fields[] = {
	COUNT(collectives[COLLECTIVE_ALL_GATHER], "all_gather"),
	COUNT(collectives[COLLECTIVE_REDUCE_SCATTER], "reduce_scatter"),
	COUNT(collectives[COLLECTIVE_ALL_REDUCE], "all_reduce"),
	FIELD_INT(struct prediction, collectives[COLLECTIVE_ALL_TO_ALL], "all_to_all",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_INT(struct prediction, collectives[COLLECTIVE_SEND_RECV], "send_recv",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_END};

static const struct field uncertainty_fields[] = {NUMBER(step_time_low, "step_time_low_s"),
	NUMBER(step_time_high, "step_time_high_s"), IF_KNOWN(step_time_p95, "step_time_p95_s"),
	IF_KNOWN(step_time_best, "step_time_best_s"),
	FIELD_STRING(struct prediction, uncertainty_source, "source", 0),
	FIELD_BOOL(struct prediction, host_decides, "host_decides", FIELD_OMIT_ZERO), FIELD_END};

static const struct field bound_fields[] = {IF_KNOWN(lower_bound, "lower_bound_s"),
	IF_KNOWN(plan_lower_bound, "plan_lower_bound_s"), FIELD_END};

const struct field_part prediction_parts[] = {
	{NULL, answer_fields, 0},
	{"model_states_bytes", model_states_fields, 0},
	{NULL, peak_fields, 0},
	{"memory_at_peak_bytes", category_fields, offsetof(struct prediction, memory_at_peak)},
	{"memory_category_peak_bytes", category_fields,
		offsetof(struct prediction, memory_category_peak)},
	{"ledger_category_peak_bytes", category_fields,
		offsetof(struct prediction, ledger_category_peak)},
	{NULL, host_usage_fields, 0},
	{"time_s", time_fields, 0},
	{"wire_bytes", wire_fields, 0},
	{"collectives", collective_fields, 0},
	{"uncertainty", uncertainty_fields, 0},
	{NULL, bound_fields, 0},
	{NULL, NULL, 0},
};

#define MEASURED(member, name)                                                                     \
	FIELD_INT(struct measurement, member, name, FIELD_REQUIRED | FIELD_NOT_NEGATIVE)

static const struct field measured_fields[] = {
	FIELD_INT(struct measurement, ranks, "ranks", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct measurement, nodes, "nodes", FIELD_POSITIVE | FIELD_OMIT_ZERO),
	MEASURED(steps, "steps"), MEASURED(warm_up_steps, "warm_up_steps"),
	FIELD_DOUBLE(struct measurement, step_time_p50, "step_time_p50_s", FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct measurement, step_time_p95, "step_time_p95_s", FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct measurement, step_time_variance, "step_time_variance_s2",
		FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct measurement, yardstick_before, "yardstick_before_s",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_DOUBLE(struct measurement, yardstick_after, "yardstick_after_s",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_STRING(struct measurement, weights_digest, "weights_digest", 0),
	FIELD_STRING(struct measurement, reproducible, "reproducible", 0),
	FIELD_STRING(struct measurement, cuda_graphs, "cuda_graphs", 0),
	FIELD_STRING(struct measurement, nccl, "nccl", 0),
	FIELD_STRING(struct measurement, nccl_buffers, "nccl_buffers", 0),
	FIELD_STRING(struct measurement, product_choices, "product_choices", 0),
	FIELD_STRING(struct measurement, attention_choices, "attention_choices", 0),
	FIELD_STRING(struct measurement, hardware, "hardware", 0),
	FIELD_STRING(struct measurement, versions, "versions", 0),
	FIELD_STRING(struct measurement, date, "date", 0),
	FIELD_INT(struct measurement, pss_growth_bytes, "pss_growth_bytes", 0),
	FIELD_INT(struct measurement, pss_growth_mean_bytes, "pss_growth_mean_bytes", 0),
	MEASURED(undeclared_bytes, "undeclared_bytes"),
	FIELD_INT(struct measurement, device_used_bytes, "device_used_bytes",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_INT(struct measurement, device_ranks, "device_ranks",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_STRING(struct measurement, device_account, "device_account", 0),
	FIELD_DOUBLE(struct measurement, slow_motion, "slow_motion",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_INT(struct measurement, paced_operations, "paced_operations",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_INT(struct measurement, late_operations, "late_operations",
		FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_DOUBLE(struct measurement, late, "late_s", FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_END};

const struct field_part measurement_parts[] = {{NULL, measured_fields, 0}, {NULL, NULL, 0}};

static const char *const class_keys[] = {"rank_class", "classes", "axes"};
static const char *const measurement_keys[] = {"loss", "gradient_norm", "timeline"};

static void write_parts(const struct field_part *parts, const void *object, struct writer *writer)
{
	for (; parts->fields != NULL; parts++) {
		if (parts->key != NULL)
			writer_begin_map(writer, parts->key);
		fields_write(parts->fields, (const char *)object + parts->offset, writer);
		if (parts->key != NULL)
			writer_end_map(writer);
	}
}

static const struct field class_fields[] = {
	FIELD_STRING(struct class_figures, name, "name", FIELD_REQUIRED),
	FIELD_DOUBLE(struct class_figures, step_time, "step_time_s", FIELD_NOT_NEGATIVE),
	FIELD_INT(struct class_figures, peak_memory_bytes, "peak_memory_bytes", FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(
		struct class_figures, bubble, "bubble_s", FIELD_NOT_NEGATIVE | FIELD_OMIT_ZERO),
	FIELD_END};

static void write_classes(const struct prediction *prediction, struct writer *writer)
{
	const struct class_figures all = {
		"all", prediction->step_time, prediction->peak_memory_bytes, 0};
	const struct class_figures *classes =
		prediction->classes != NULL ? prediction->classes : &all;
	int n = prediction->classes != NULL ? prediction->n_classes : 1;

	writer_string(writer, "rank_class", classes[prediction->rank_class].name);
	writer_begin_list(writer, "classes");
	for (int c = 0; c < n; c++) {
		writer_begin_map(writer, NULL);
		fields_write(class_fields, &classes[c], writer);
		writer_end_map(writer);
	}
	writer_end_list(writer);
}

/* A single class says nothing that the figures do not say already. */
static bool read_classes(struct arena *arena, const struct node *map, struct prediction *prediction,
	struct error *error)
{
	const struct node *list = node_get(map, "classes"), *worst = node_get(map, "rank_class");
	const char *name = NULL;

	if (list == NULL || list->kind != NODE_LIST || list->n_children < 2)
		return true;
	if (worst != NULL && !node_string(worst, &name, error))
		return false;
	prediction->n_classes = list->n_children;
	prediction->classes = ARENA_ARRAY(arena, struct class_figures, list->n_children);
	for (int c = 0; c < list->n_children; c++) {
		struct class_figures *figures = &prediction->classes[c];

		if (!fields_read(class_fields, list->children[c], NULL, figures, arena, error))
			return false;
		if (name != NULL && strcmp(figures->name, name) == 0)
			prediction->rank_class = c;
	}
	return true;
}

const struct field axis_fields[] = {
	FIELD_INT(struct axis_figures, ranks, "ranks", FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_INT(struct axis_figures, stride, "stride", FIELD_REQUIRED | FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct axis_figures, wire_bytes, "wire_bytes", FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct axis_figures, time, "time_s", FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct axis_figures, exposed, "exposed_s", FIELD_NOT_NEGATIVE), FIELD_END};

int prediction_axes(const struct prediction *prediction)
{
	int n = 0;

	for (int a = 0; a < GROUP_KIND_COUNT; a++)
		n += prediction->axes[a].ranks > 0;
	return n;
}

static void write_axes(const struct prediction *prediction, struct writer *writer)
{
	if (prediction_axes(prediction) < 2)
		return;
	writer_begin_map(writer, "axes");
	for (int a = 0; a < GROUP_KIND_COUNT; a++) {
		if (prediction->axes[a].ranks == 0)
			continue;
		writer_begin_map(writer, group_kind_names[a]);
		fields_write(axis_fields, &prediction->axes[a], writer);
		writer_end_map(writer);
	}
	writer_end_map(writer);
}

static bool read_axes(struct arena *arena, const struct node *map, struct prediction *prediction,
	struct error *error)
{
	const struct node *axes = node_get(map, "axes");

	for (int a = 0; a < GROUP_KIND_COUNT && axes != NULL; a++) {
		const struct node *axis = node_get(axes, group_kind_names[a]);
		if (axis != NULL &&
			!fields_read(axis_fields, axis, NULL, &prediction->axes[a], arena, error))
			return false;
	}
	return axes == NULL || node_only_keys(axes, group_kind_names, error);
}

void prediction_write(const struct prediction *prediction, struct writer *writer)
{
	write_parts(prediction_parts, prediction, writer);
	write_classes(prediction, writer);
	write_axes(prediction, writer);
}

/* Holds every key that the surrounding map may have, so that an unknown one is found. */
struct key_list {
	const char *keys[96];
	int n;
};

static void add_key(struct key_list *list, const char *key)
{
	assert(list->n + 1 < COUNT_OF(list->keys));
	list->keys[list->n++] = key;
}

static void add_part_keys(struct key_list *list, const struct field_part *parts)
{
	for (; parts->fields != NULL; parts++) {
		if (parts->key != NULL) {
			add_key(list, parts->key);
			continue;
		}
		for (const struct field *field = parts->fields; field->name != NULL; field++)
			add_key(list, field->name);
	}
}

static void add_keys(struct key_list *list, const char *const *keys, int n)
{
	for (int i = 0; i < n; i++)
		add_key(list, keys[i]);
}

/* `known` has the keys of the surrounding map. If an inner map is absent, its fields stay as they
 * are. */
static bool read_parts(const struct field_part *parts, const struct key_list *known,
	const struct node *map, void *object, struct arena *arena, struct error *error)
{
	for (; parts->fields != NULL; parts++) {
		const char *key = parts->key;
		const struct node *inner = key != NULL ? node_get(map, key) : map;
		if (key != NULL && inner == NULL)
			continue;
		if (!fields_read(parts->fields, inner, key == NULL ? known->keys : NULL,
			    (char *)object + parts->offset, arena, error))
			return false;
	}
	return true;
}

bool prediction_read(struct arena *arena, const struct node *map, struct prediction *prediction,
	struct error *error)
{
	struct key_list known = {.n = 0};

	add_part_keys(&known, prediction_parts);
	add_keys(&known, class_keys, COUNT_OF(class_keys));
	*prediction = (struct prediction){.peak_op = -1};
	return read_parts(prediction_parts, &known, map, prediction, arena, error) &&
	       read_classes(arena, map, prediction, error) &&
	       read_axes(arena, map, prediction, error);
}

/* Non-finite numbers are written as null. */
static void write_numbers(const char *key, const double *numbers, int n, struct writer *writer)
{
	if (numbers == NULL)
		return;
	writer_begin_list(writer, key);
	for (int i = 0; i < n; i++)
		writer_number(writer, NULL, numbers[i]);
	writer_end_list(writer);
}

double measurement_step(const struct measurement *measurement)
{
	return measurement->step_time_p50 > 0 ? measurement->step_time_p50
					      : measurement->values.step_time;
}

void measurement_write(const struct measurement *measurement, struct writer *writer)
{
	prediction_write(&measurement->values, writer);
	write_parts(measurement_parts, measurement, writer);
	write_numbers("loss", measurement->losses, measurement->n_losses, writer);
	write_numbers("gradient_norm", measurement->gradient_norms, measurement->n_losses, writer);
	if (measurement->timeline.n_ops == 0)
		return;
	writer_begin_map(writer, "timeline");
	timeline_write(&measurement->timeline, writer);
	writer_end_map(writer);
}

static bool read_numbers(
	struct arena *arena, const struct node *list, double **numbers, int *n, struct error *error)
{
	if (list->kind != NODE_LIST)
		return node_error(list, error, "expected a list of numbers, one a step");
	*n = list->n_children;
	*numbers = ARENA_ARRAY(arena, double, *n);
	for (int i = 0; i < *n; i++) {
		if (list->children[i]->kind == NODE_NULL)
			(*numbers)[i] = NAN;
		else if (!node_double(list->children[i], &(*numbers)[i], error))
			return false;
	}
	return true;
}

static bool read_curves(struct arena *arena, const struct node *map,
	struct measurement *measurement, struct error *error)
{
	const struct node *loss = node_get(map, "loss"), *norm = node_get(map, "gradient_norm");
	int n_norms = 0;

	if (loss != NULL &&
		!read_numbers(arena, loss, &measurement->losses, &measurement->n_losses, error))
		return false;
	if (norm == NULL)
		return true;
	if (!read_numbers(arena, norm, &measurement->gradient_norms, &n_norms, error))
		return false;
	if (n_norms != measurement->n_losses)
		return node_error(norm, error, "expected as many as losses, %d, got %d",
			measurement->n_losses, n_norms);
	return true;
}

bool measurement_read(struct arena *arena, const struct node *map, struct measurement *measurement,
	struct error *error)
{
	struct key_list known = {.n = 0};
	const struct node *timeline = node_get(map, "timeline");

	add_part_keys(&known, prediction_parts);
	add_keys(&known, class_keys, COUNT_OF(class_keys));
	add_part_keys(&known, measurement_parts);
	add_keys(&known, measurement_keys, COUNT_OF(measurement_keys));
	*measurement = (struct measurement){.values.peak_op = -1};
	if (!read_parts(prediction_parts, &known, map, &measurement->values, arena, error) ||
		!read_classes(arena, map, &measurement->values, error) ||
		!read_axes(arena, map, &measurement->values, error) ||
		!read_parts(measurement_parts, &known, map, measurement, arena, error) ||
		!read_curves(arena, map, measurement, error))
		return false;
	return timeline == NULL || timeline_read(arena, timeline, &measurement->timeline, error);
}
