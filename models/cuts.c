/* Where a rank's part of a parameter lies in the whole one. */
#include "models/model.h"

enum tensor_cut module_cut(enum module_kind kind)
{
	static const enum tensor_cut cuts[MODULE_KIND_COUNT] = {
		[MODULE_EMBEDDING] = CUT_ROWS,
		[MODULE_QKV] = CUT_ROWS,
		[MODULE_QUERY] = CUT_ROWS,
		[MODULE_KEY] = CUT_ROWS,
		[MODULE_VALUE] = CUT_ROWS,
		[MODULE_KV_UP] = CUT_ROWS,
		[MODULE_GATE] = CUT_ROWS,
		[MODULE_UP] = CUT_ROWS,
		[MODULE_GATE_UP] = CUT_ROWS,
		[MODULE_SHARED_GATE] = CUT_ROWS,
		[MODULE_SHARED_UP] = CUT_ROWS,
		[MODULE_HEAD] = CUT_ROWS,
		[MODULE_ATTENTION_OUTPUT] = CUT_COLUMNS,
		[MODULE_DOWN] = CUT_COLUMNS,
		[MODULE_SHARED_DOWN] = CUT_COLUMNS,
	};

	return cuts[kind];
}

/* The bias of a layer that is cut by columns is whole. What the executor trains over ranks has no
 * adapters. */
static enum tensor_cut cut_of(const struct model *part, int parameter)
{
	const struct parameter *p = &part->parameters[parameter];
	enum module_kind kind = part->modules[p->module].kind;
	enum tensor_cut cut = module_cut(kind);

	if (part->division.expert > 1)
		return module_kind_is_of_experts(kind) ? CUT_ROWS : CUT_NOT;
	if (part->division.tensor <= 1 || (cut == CUT_COLUMNS && p->n_dims == 1))
		return CUT_NOT;
	return cut;
}

int64_t model_parts(const struct model *part)
{
	return max_i64(part->division.tensor, 1) * max_i64(part->division.expert, 1);
}

static int64_t row_of(const struct parameter *p)
{
	return p->elements / p->shape[0];
}

bool model_parameter_is_cut(const struct model *part, int parameter)
{
	return cut_of(part, parameter) != CUT_NOT;
}

/* Rows of a parameter that are cut apart from its other rows: queries, keys or values. `rows` are
 * those of one rank, `first` is where they begin in the whole parameter. */
struct band {
	int64_t rows, first;
};

/* Where there are fewer key heads than ranks, several ranks have the same head. */
static struct band key_band(const struct model *part, int64_t rank, int64_t before)
{
	const struct architecture *own = &part->architecture;
	const struct architecture *all = &model_whole(part)->architecture;
	int64_t head = rank * all->kv_heads / part->division.tensor;

	return (struct band){own->kv_heads * own->head_dim, before + head * own->head_dim};
}

/* The bands of a parameter, in the order that they have in the rank's part and in the whole. */
static int find_bands(
	const struct model *part, const struct parameter *p, int64_t rank, struct band bands[3])
{
	const struct architecture *own = &part->architecture;
	const struct architecture *all = &model_whole(part)->architecture;
	enum module_kind kind = part->modules[p->module].kind;
	int64_t queries = all->heads * all->head_dim, keys = all->kv_heads * all->head_dim;

	bands[0] = (struct band){p->shape[0], rank * p->shape[0]};
	if (kind == MODULE_KEY || kind == MODULE_VALUE)
		bands[0] = key_band(part, rank, 0);
	if (kind != MODULE_QKV)
		return 1;
	bands[0].rows = own->heads * own->head_dim;
	bands[0].first = rank * bands[0].rows;
	bands[1] = key_band(part, rank, queries);
	bands[2] = key_band(part, rank, queries + keys);
	return 3;
}

/* The last rank's part of a vocabulary may be padded: its rows go on behind the last word. */
static struct parameter_run run_of_rows(
	const struct model *part, const struct parameter *p, int64_t rank, int64_t element)
{
	const struct parameter *all =
		&model_whole(part)
			 ->parameters[model_whole_parameter(part, (int)(p - part->parameters))];
	int64_t columns = row_of(p), row = element / columns;
	struct band bands[3];
	int n = find_bands(part, p, rank, bands), b = 0;
	int64_t before = 0;

	while (b < n - 1 && row >= before + bands[b].rows)
		before += bands[b++].rows;
	int64_t end = (before + bands[b].rows) * columns;
	int64_t whole = element + (bands[b].first - before) * columns;
	if (whole >= all->elements)
		return (struct parameter_run){-1, end - element};
	return (struct parameter_run){whole, min_i64(end - element, all->elements - whole)};
}

static struct parameter_run run_of_columns(
	const struct model *part, const struct parameter *p, int64_t rank, int64_t element)
{
	int64_t columns = p->shape[1], row = element / columns, column = element % columns;
	int64_t whole = (row * part->division.tensor + rank) * columns + column;

	return (struct parameter_run){whole, columns - column};
}

static struct parameter_run whole_run(
	const struct model *part, int parameter, int64_t rank, int64_t element)
{
	const struct parameter *p = &part->parameters[parameter];

	switch (cut_of(part, parameter)) {
	case CUT_ROWS:
		return run_of_rows(part, p, rank, element);
	case CUT_COLUMNS:
		return run_of_columns(part, p, rank, element);
	case CUT_NOT:
		break;
	}
	return (struct parameter_run){element, p->elements - element};
}

struct parameter_run model_parameter_run(
	const struct model *part, int parameter, int64_t rank, int64_t element, int64_t most)
{
	struct parameter_run run = whole_run(part, parameter, rank, element);

	run.n = min_i64(run.n, most);
	return run;
}

static struct parameter_holder holder_of_rows(
	const struct model *part, const struct parameter *p, int64_t whole)
{
	int64_t columns = row_of(p), row = whole / columns;
	struct band bands[3];

	for (int64_t rank = 0; rank < model_parts(part); rank++) {
		int n = find_bands(part, p, rank, bands);
		int64_t before = 0;

		for (int b = 0; b < n; before += bands[b++].rows) {
			int64_t in = row - bands[b].first;

			if (in >= 0 && in < bands[b].rows)
				return (struct parameter_holder){rank,
					(before + in) * columns + whole % columns,
					(bands[b].first + bands[b].rows) * columns - whole};
		}
	}
	return (struct parameter_holder){0, 0, 0}; /* all rows are somewhere */
}

static struct parameter_holder holder_of_columns(
	const struct model *part, const struct parameter *p, int64_t whole)
{
	int64_t columns = p->shape[1], tensor = part->division.tensor;
	int64_t row = whole / (columns * tensor), column = whole % (columns * tensor);

	return (struct parameter_holder){
		column / columns, row * columns + column % columns, columns - column % columns};
}

struct parameter_holder model_parameter_holder(
	const struct model *part, int parameter, int64_t whole, int64_t most)
{
	const struct parameter *p = &part->parameters[parameter];
	struct parameter_holder holder = {0, whole, p->elements - whole};

	if (cut_of(part, parameter) == CUT_ROWS)
		holder = holder_of_rows(part, p, whole);
	else if (cut_of(part, parameter) == CUT_COLUMNS)
		holder = holder_of_columns(part, p, whole);
	holder.n = min_i64(holder.n, most);
	return holder;
}

int64_t model_first_word(const struct model *part, int64_t rank)
{
	return rank * part->architecture.vocab;
}

int64_t model_words(const struct model *part, int64_t rank)
{
	int64_t left = model_whole(part)->architecture.vocab - model_first_word(part, rank);

	return max_i64(0, min_i64(left, part->architecture.vocab));
}
