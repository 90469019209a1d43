/* Prints the tables of fields that documents are read and written with: a line a field, its table,
 * name, type, flags and the names of its values. generate.py makes JSON Schema of them. */
#include <stdio.h>

#include "models/models.h"
#include "schedule/documents/documents.h"
#include "schedule/plan/plan.h"
#include "topologies/topologies.h"

static const char *const type_names[] = {"end", "boolean", "integer", "integer", "number", "string",
	"enum", "runs", "quantity", "quantity", "quantity", "quantity"};

static void print_field(const char *table, const struct field *field)
{
	const char *type = field->type == FIELD_TYPE_DECODED && field->names == NULL
				   ? "string"
				   : type_names[field->type];

	printf("%s %s %s %s %s %s", table, field->name, type,
		(field->flags & FIELD_REQUIRED) != 0 ? "required" : "-",
		(field->flags & FIELD_POSITIVE) != 0       ? "positive"
		: (field->flags & FIELD_NOT_NEGATIVE) != 0 ? "not_negative"
							   : "-",
		(field->flags & FIELD_OMIT_ZERO) != 0 ? "omits_zero" : "-");
	for (int i = 0; field->names != NULL && field->names[i] != NULL; i++)
		printf(" %s", field->names[i]);
	printf("\n");
}

static void print_table(const char *table, const struct field *fields)
{
	for (; fields->name != NULL; fields++)
		print_field(table, fields);
}

/* A part with a key of its own is the table "prediction.KEY", and a field of type "part". */
static void print_parts(const char *table, const struct field_part *parts)
{
	char name[96];

	for (; parts->fields != NULL; parts++) {
		if (parts->key == NULL) {
			print_table(table, parts->fields);
			continue;
		}
		snprintf(name, sizeof(name), "%s.%s", table, parts->key);
		printf("%s %s part required - -\n", table, parts->key);
		print_table(name, parts->fields);
	}
}

int main(void)
{
	for (int id = 0; id < KNOB_IN_MESH; id++)
		print_field("plan", &knob_table[id].field);
	print_table("mesh", mesh_fields);
	print_parts("prediction", prediction_parts);
	print_parts("measurement", measurement_parts);
	print_table("architecture", architecture_fields);
	print_table("topology", topology_fields);
	print_table("device", device_fields);
	print_table("fabric", fabric_fields);
	print_table("network", network_fields);
	print_table("host", host_fields);
	print_table("overheads", overheads_fields);
	print_table("calibration", calibration_fields);
	print_table("calibration.collectives", calibration_collective_fields);
	print_table("calibration.products", calibration_product_fields);
	print_table("calibration.choices", calibration_choice_fields);
	print_table("calibration.attention", calibration_attention_fields);
	print_table("calibration.kernels", calibration_kernel_fields);
	print_table("calibration.steps", calibration_step_fields);
	return 0;
}
