/* Models and node types by name: the product's own, and those that only published rows need. */
#include "accuracy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool file_text(
	struct arena *arena, const char *path, char **text, size_t *length, struct error *error)
{
	FILE *file = fopen(path, "rb");
	struct text read = {0};
	char piece[65536];
	size_t n;

	if (file == NULL)
		return error_set(error, EXIT_CODE_INPUT, "%s: cannot be read", path);
	while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
		text_add_bytes(&read, piece, n);
	fclose(file);
	*length = read.length;
	*text = arena_strndup(arena, text_string(&read), read.length);
	text_finish(&read);
	return true;
}

bool file_table(struct arena *arena, const char *path, struct csv_table *table, struct error *error)
{
	char *text;
	size_t length;

	return file_text(arena, path, &text, &length, error) &&
	       csv_read(arena, path, text, length, table, error);
}

bool catalogue_read(
	struct arena *arena, const char *folder, struct catalogue *catalogue, struct error *error)
{
	const char *path = arena_printf(arena, "%s/models.csv", folder);

	*catalogue = (struct catalogue){.folder = folder};
	return file_table(arena, path, &catalogue->models, error);
}

/* A row of models.csv as a model file whose longest sequence is the row's own: a learned position
 * table has as many entries as the run's sequence. */
static const char *model_file(const struct catalogue *catalogue, struct arena *arena,
	const struct csv_row *row, const char *seq_len)
{
	const struct csv_row *header = &catalogue->models.header;
	struct text text = {0};

	text_add(&text, "shardplan: model/1\n");
	for (int i = 0; i < row->n_cells && i < header->n_cells; i++) {
		if (row->cells[i][0] != '\0')
			text_printf(&text, "%s: %s\n", header->cells[i], row->cells[i]);
	}
	text_printf(&text, "context: %s\n", seq_len);
	const char *file = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return file;
}

bool catalogue_model(const struct catalogue *catalogue, struct arena *arena, const char *name,
	const char *seq_len, struct model **model, struct error *error)
{
	for (int i = 0; i < catalogue->models.n_rows; i++) {
		const struct csv_row *row = &catalogue->models.rows[i];
		if (strcmp(row->cells[0], name) != 0)
			continue;
		const char *file = model_file(catalogue, arena, row, seq_len);
		return model_parse(arena, name, file, strlen(file), model, error);
	}
	return model_load_preset(arena, name, model, error);
}

/* Splits "16xname" into 16 and "name"; 0: there is no number. */
static int64_t split_nodes(const char *name, const char **node)
{
	char *end;
	long long nodes = strtoll(name, &end, 10);

	if (end == name || *end != 'x' || nodes <= 0)
		return 0;
	*node = end + 1;
	return nodes;
}

bool catalogue_topology(const struct catalogue *catalogue, struct arena *arena, const char *name,
	struct topology **topology, struct error *error)
{
	const char *node = name;
	int64_t nodes = split_nodes(name, &node);
	const char *path = arena_printf(arena, "%s/topologies/%s.yaml", catalogue->folder, node);
	struct error missing = {0};
	char *text;
	size_t length;

	if (!file_text(arena, path, &text, &length, &missing))
		return topology_load_name(arena, name, topology, error);
	if (!topology_parse(arena, path, text, length, topology, error))
		return false;
	(*topology)->nodes = nodes > 0 ? nodes : 1;
	return true;
}
