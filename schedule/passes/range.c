/* Ranges of leaves: their slots, what they save, and the size of their gradients. */
#include "schedule/passes/passes.h"

enum checkpointing checkpointing_of(const struct builder *b, const struct event *event)
{
	return event->layer >= 0 ? b->checkpointing[event->layer] : CHECKPOINTING_NONE;
}

void op_set_range(struct builder *b, const struct event *event)
{
	b->op.layer = event->layer;
	b->op.first_module = event->first_module;
	b->op.end_module = event->end_module;
}

int slot_begin(const struct builder *b, int event)
{
	int first = event;
	for (int i = event; i >= 0; i--) {
		if (b->events[i].kind != EVENT_RANGE)
			continue;
		if (b->events[i].slot != b->events[event].slot)
			break;
		first = i;
	}
	return first;
}

void op_use_slot(struct builder *b, int event)
{
	op_use(b, b->saved[event]);
	op_use(b, b->results[event]);
	for (int i = slot_begin(b, event); i < event; i++)
		if (b->events[i].kind == EVENT_RANGE) {
			op_use(b, b->saved[i]);
			op_use(b, b->results[i]);
		}
}

int64_t range_parameters(const struct builder *b, const struct event *range)
{
	int64_t total = 0;
	for (int m = range->first_module; m < range->end_module; m++) {
		const struct module *module = &b->model->modules[m];
		for (int p = 0; p < module->n_parameters; p++)
			total += b->model->parameters[module->first_parameter + p].elements;
		if (module->tied_parameter >= 0)
			total += b->model->parameters[module->tied_parameter].elements;
	}
	return total;
}

/* Of a tied weight, backward meets the head first. The embedding's own part is added to what is
 * there: it lives for one operation only. Elements of [range] that are such. */
static int64_t tied_parameters(const struct builder *b, const struct event *range)
{
	const struct module *head = &b->model->modules[b->model->n_modules - 1];
	if (head->tied_parameter < 0)
		return 0;
	const struct parameter *tied = &b->model->parameters[head->tied_parameter];
	bool inside = tied->module >= range->first_module && tied->module < range->end_module;
	return inside && b->model->n_modules > range->end_module ? tied->elements : 0;
}

int64_t gradient_elements(struct builder *b, const struct event *range, enum dtype dtype)
{
	int64_t tied = tied_parameters(b, range);
	if (tied > 0) {
		int addend = buffer_new(b, BUFFER_GRADIENT, STREAM_COMPUTE, range->unit,
			tied * dtype_bytes(dtype), dtype);
		op_take(b, addend);
		op_use(b, addend);
		op_give(b, addend);
	}
	return range_parameters(b, range) - tied;
}

/* Gradients of a leaf's parameters for one sequence, before they are added up exactly. */
int64_t gradient_scratch_bytes(const struct model *model)
{
	int64_t most = 0;
	for (int m = 0; m < model->n_modules; m++) {
		const struct module *module = &model->modules[m];
		int64_t elements = 0;
		for (int p = 0; p < module->n_parameters; p++)
			elements += model->parameters[module->first_parameter + p].elements;
		if (module->tied_parameter >= 0)
			elements = model->parameters[module->tied_parameter].elements;
		most = max_i64(most, elements);
	}
	return most * dtype_bytes(DTYPE_FP32);
}
