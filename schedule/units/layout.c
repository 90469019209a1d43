/* Lays parameters out in a unit. */
#include "schedule/units/layout.h"

void unit_add_slice(struct unit *unit, const struct model *model, int parameter)
{
	unit->slices[unit->n_slices++] = (struct unit_slice){
		.parameter = parameter, .elements = model->parameters[parameter].elements};
	unit->parameters += model->parameters[parameter].elements;
	if (model->parameters[parameter].trainable)
		unit->trained_parameters += model->parameters[parameter].elements;
}

/* Either all of the unit is trained or nothing is. */
void unit_lay_out_flat(
	struct unit *unit, const struct model *model, int64_t alignment, int64_t group)
{
	int64_t offset = 0;
	for (int i = 0; i < unit->n_slices; i++) {
		struct unit_slice *slice = &unit->slices[i];
		offset = round_up(offset, alignment);
		slice->offset = offset;
		slice->padded_elements = slice->elements;
		offset += slice->elements;
	}
	unit->elements = round_up(offset, group);
	unit->chunk = unit->elements / group;
	unit->gathered = unit->chunk * group;
	if (unit->n_slices == 0 || !model->parameters[unit->slices[0].parameter].trainable)
		return;
	unit->trained_elements = unit->elements;
	unit->trained_chunk = unit->chunk;
	unit->trained_gathered = unit->gathered;
}

void unit_lay_out_per_parameter(struct unit *unit, const struct model *model, int64_t group)
{
	int64_t offset = 0;
	for (int i = 0; i < unit->n_slices; i++) {
		struct unit_slice *slice = &unit->slices[i];
		const struct parameter *parameter = &model->parameters[slice->parameter];
		int64_t rows = round_up(parameter->shape[0], group);
		slice->offset = offset;
		slice->padded_elements = rows * (slice->elements / parameter->shape[0]);
		offset += slice->padded_elements;
		if (parameter->trainable)
			unit->trained_gathered += slice->padded_elements;
	}
	unit->trained_elements = unit->trained_gathered;
	unit->trained_chunk = unit->trained_gathered / group;
	unit->elements = offset;
	unit->chunk = offset / group;
	unit->gathered = offset;
}

/* A flat unit is cut wherever a rank's part ends. The few elements that do not divide count as not
 * in fp8, so that all parts have as many whole bytes. */
static void count_fp8(const struct plan *plan, const struct model *model, struct unit *unit)
{
	for (int i = 0; i < unit->n_slices; i++) {
		const struct parameter *parameter = &model->parameters[unit->slices[i].parameter];
		if (parameter->n_dims == 2 && fp8_converts(plan, model, parameter->module) &&
			!parameter_is_adapter(model, unit->slices[i].parameter))
			unit->fp8_elements += unit->slices[i].padded_elements;
	}
	unit->fp8_elements -= unit->fp8_elements %
			      (unit_shard_ranks(unit, plan) * fp8_rules_of(plan->fp8)->per_byte);
}

void units_count_fp8(const struct plan *plan, const struct model *model, struct unit *units, int n)
{
	for (int u = 0; u < n && fp8_gathers_weights(plan); u++)
		count_fp8(plan, model, &units[u]);
}
