/* Reads measurements from CSV. */
#include "accuracy.h"

#include <stdlib.h>
#include <string.h>

static const char *const known[] = {"row", "source", "reference", "date", "gpu", "family", "model",
	"topology", "gpus", "part", "debugging", "measured_tokens_per_s_per_gpu",
	"measured_peak_gib", "measured_steady_gib", "mem_metric", "status", "notes", "knob",
	"value", "instead_of", "measured_ratio"};

bool column_is_option(const char *name)
{
	for (int i = 0; i < COUNT_OF(known); i++) {
		if (strcmp(known[i], name) == 0)
			return false;
	}
	return true;
}

const char *row_cell(const struct row *row, const char *column)
{
	for (int i = 0; i < row->header->n_cells; i++) {
		if (strcmp(row->header->cells[i], column) == 0)
			return row->cells[i];
	}
	return "";
}

const char *row_mix(const struct row *row, struct arena *arena)
{
	static const char *const axes[] = {"tensor", "pipeline", "context", "expert"};
	const char *mix = "";

	for (int i = 0; i < COUNT_OF(axes); i++)
		if (strtol(row_cell(row, axes[i]), NULL, 10) > 1)
			mix = arena_printf(
				arena, "%s%s%s", mix, mix[0] != '\0' ? " x " : "", axes[i]);
	return mix[0] != '\0' ? mix : "data";
}

static double number(const char *cell)
{
	return cell[0] != '\0' ? strtod(cell, NULL) : 0;
}

static enum status status_of(const char *cell)
{
	static const char *const names[] = {"ok", "oom", "incomplete"};

	for (int i = 0; i < COUNT_OF(names); i++) {
		if (strcmp(names[i], cell) == 0)
			return (enum status)i;
	}
	return STATUS_OTHER;
}

static void fill(struct row *row)
{
	row->name = row_cell(row, "row");
	row->source = row_cell(row, "source");
	row->reference = row_cell(row, "reference");
	row->gpu = row_cell(row, "gpu");
	row->family = row_cell(row, "family");
	row->model = row_cell(row, "model");
	row->topology = row_cell(row, "topology");
	const char *part = row_cell(row, "part");
	row->given_part = part[0] != '\0' ? part : NULL;
	row->notes = row_cell(row, "notes");
	row->metric = row_cell(row, "mem_metric");
	row->status = status_of(row_cell(row, "status"));
	row->measured_tokens = number(row_cell(row, "measured_tokens_per_s_per_gpu"));
	row->measured_peak = number(row_cell(row, "measured_peak_gib"));
	row->measured_steady = number(row_cell(row, "measured_steady_gib"));
}

static struct row *append(struct row_list *rows)
{
	if (rows->n == rows->capacity) {
		rows->capacity = rows->capacity > 0 ? 2 * rows->capacity : 256;
		rows->of = realloc(rows->of, (size_t)rows->capacity * sizeof(*rows->of));
		if (rows->of == NULL)
			abort();
	}
	rows->of[rows->n] = (struct row){0};
	return &rows->of[rows->n++];
}

bool row_list_read(
	struct arena *arena, const char *path, struct row_list *rows, struct error *error)
{
	struct csv_table *table = ARENA_ARRAY(arena, struct csv_table, 1);

	if (!file_table(arena, path, table, error))
		return false;
	for (int i = 0; i < table->n_rows; i++) {
		const struct csv_row *line = &table->rows[i];
		if (line->n_cells != table->header.n_cells)
			return error_at(error, EXIT_CODE_INPUT, path, line->line, 1,
				"expected %d cells, got %d", table->header.n_cells, line->n_cells);
		struct row *row = append(rows);
		row->file = path;
		row->line = line->line;
		row->cells = line->cells;
		row->header = &table->header;
		fill(row);
	}
	return true;
}
