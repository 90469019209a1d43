/* `nvidia-smi topo -m`: a matrix of how devices reach each other.
 *
 * Newer drivers add columns, people paste it with blanks for tabs, and the header may be
 * underlined: so words are counted, not columns. NV# is a number of links, not a generation. */
#include <stdio.h>
#include <string.h>

#include "topologies/import/draft.h"

enum { COLUMNS_MAX = 256, SMI_LINE = 8192 };

struct matrix {
	struct topology_import *import;
	const char *name;
	struct node_links *links;
	int gpus, nics; /* columns */
	int rows;       /* of GPUs, read so far */
	char column_is_gpu[COLUMNS_MAX];
	int n_columns;
};

static bool is_gpu_name(const char *word)
{
	return strncmp(word, "GPU", 3) == 0 && word[3] >= '0' && word[3] <= '9' &&
	       word[3 + strspn(word + 3, "0123456789")] == '\0';
}

/* "GPU0", "NIC3", "mlx5_0", "mlx5_bond_0" */
static bool is_device(const char *word)
{
	return is_gpu_name(word) || strncmp(word, "NIC", 3) == 0 || strncmp(word, "mlx", 3) == 0 ||
	       strncmp(word, "bnxt", 4) == 0 || strncmp(word, "efa", 3) == 0 ||
	       strncmp(word, "rdma", 4) == 0 || strncmp(word, "hns", 3) == 0 ||
	       strncmp(word, "irdma", 5) == 0;
}

static bool is_header(char *line, char **words, int *n)
{
	*n = split_words(line, words, COLUMNS_MAX);
	return *n > 0 && is_gpu_name(words[0]) &&
	       (*n == 1 || is_device(words[1]) || strcmp(words[1], "CPU") == 0);
}

bool is_smi_matrix(const char *text, size_t length)
{
	struct lines lines = {text, text + length, 0, true};
	char line[SMI_LINE];
	char *words[COLUMNS_MAX];
	int n;

	for (int i = 0; i < 50 && lines_next(&lines, line, sizeof(line)); i++)
		if (is_header(line, words, &n))
			return true;
	return false;
}

static bool bad(
	const struct matrix *m, int line, struct error *error, const char *what, const char *got)
{
	return error_at(error, EXIT_CODE_INPUT, m->name, line, 1, "%s, got \"%.40s\"", what, got);
}

static bool read_header(struct matrix *m, char **words, int n, int line, struct error *error)
{
	for (int i = 0; i < n && is_device(words[i]); i++) {
		bool gpu = is_gpu_name(words[i]);

		m->column_is_gpu[m->n_columns++] = gpu;
		m->gpus += gpu;
		m->nics += !gpu;
	}
	if (m->gpus > GPUS_MAX)
		return error_at(error, EXIT_CODE_INPUT, m->name, line, 1,
			"expected at most %d GPUs in a node, got %d", GPUS_MAX, m->gpus);
	m->links->gpus = m->gpus;
	return true;
}

/* "X", "NV12", "PIX", ... */
static bool read_cell(
	struct matrix *m, int row, int column, const char *word, int line, struct error *error)
{
	int64_t count;

	if (strcmp(word, "X") == 0 && row == column)
		return true;
	if (strncmp(word, "NV", 2) == 0 && parse_int(word + 2, &count) && count > 0 && count < 64) {
		m->links->nvlinks[row][column] = (unsigned char)count;
		m->links->paths[row][column] = PATH_NVLINK;
		return true;
	}
	for (int p = PATH_PIX; path_names[p] != NULL; p++)
		if (strcmp(word, path_names[p]) == 0) {
			m->links->paths[row][column] = (unsigned char)p;
			return true;
		}
	return bad(m, line, error, "expected NV#, PIX, PXB, PHB, NODE or SYS", word);
}

static bool read_gpu_row(struct matrix *m, char **words, int n, int line, struct error *error)
{
	int row = m->rows++, column = 0;

	if (row >= m->gpus)
		return bad(m, line, error, "more rows of GPUs than columns", words[0]);
	if (n < m->n_columns + 1)
		return error_at(error, EXIT_CODE_INPUT, m->name, line, 1,
			"expected %d cells, got %d; is the line cut off?", m->n_columns, n - 1);
	for (int i = 0; i < m->n_columns; i++)
		if (m->column_is_gpu[i] && !read_cell(m, row, column++, words[i + 1], line, error))
			return false;
	return true;
}

static bool check_symmetric(const struct matrix *m, struct error *error)
{
	for (int i = 0; i < m->gpus; i++)
		for (int j = 0; j < i; j++)
			if (m->links->nvlinks[i][j] != m->links->nvlinks[j][i] ||
				m->links->paths[i][j] != m->links->paths[j][i])
				return error_at(error, EXIT_CODE_INPUT, m->name, 0, 0,
					"GPU%d and GPU%d reach each other differently, "
					"expected a symmetric matrix",
					i, j);
	return true;
}

static bool set_matrix(struct matrix *m, struct error *error)
{
	struct topology_import *import = m->import;
	const char *by = "nvidia-smi topo -m";

	if (!draft_set_int(import, PROPERTY_DEVICES_PER_NODE, m->gpus, m->name, by, error) ||
		(m->nics > 0 && !draft_set_int(import, PROPERTY_NICS_PER_NODE, m->nics, m->name, by,
					error)))
		return false;
	if (m->nics > 0)
		draft_note(import,
			"%s: counts all %d NICs, also those for storage and login; "
			"--network KIND:NICSxBANDWIDTH says which carry the training",
			m->name, m->nics);
	/* An XML's links know the PCIe bandwidths. */
	if (import->links == NULL)
		import->links = m->links;
	return true;
}

bool import_smi_matrix(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	struct lines lines = {text, text + length, 0, true};
	struct matrix m = {.import = import, .name = name};
	char line[SMI_LINE];
	char *words[COLUMNS_MAX];
	int n;

	m.links = ARENA_NEW(import->arena, struct node_links);
	m.links->name = name;
	m.links->by = "nvidia-smi topo -m";
	while (lines_next(&lines, line, sizeof(line))) {
		if (m.n_columns == 0) {
			if (is_header(line, words, &n) &&
				!read_header(&m, words, n, lines.number, error))
				return false;
			continue;
		}
		n = split_words(line, words, COLUMNS_MAX);
		if (n == 0 || !is_gpu_name(words[0]))
			continue;
		if (!read_gpu_row(&m, words, n, lines.number, error))
			return false;
	}
	if (m.rows != m.gpus)
		return error_at(error, EXIT_CODE_INPUT, name, lines.number, 1,
			"expected %d rows of GPUs, got %d; is the matrix cut off?", m.gpus, m.rows);
	return check_symmetric(&m, error) && set_matrix(&m, error);
}
