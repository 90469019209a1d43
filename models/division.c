/* What one rank has of a model that several divide between them. */
#include "models/model.h"
#include "models/widths.h"

static int64_t parts(int64_t n)
{
	return max_i64(n, 1);
}

/* Of something that has one value for the model and is cut evenly; 0 stays. */
static int64_t share(int64_t whole, int64_t n)
{
	return ceil_div(whole, n);
}

static struct architecture share_of(const struct architecture *whole, int64_t n)
{
	struct architecture a = *whole;

	a.heads = share(a.heads, n);
	a.kv_heads = share(a.kv_heads, n);
	a.ffn = share(a.ffn, n);
	a.expert_ffn = share(a.expert_ffn, n);
	a.shared_ffn = share(a.shared_ffn, n);
	a.vocab = share(a.vocab, n);
	return a;
}

bool model_divide(struct arena *arena, const struct model *model, const struct division *division,
	struct model **divided, struct error *error)
{
	const struct architecture a = share_of(&model->architecture, parts(division->tensor));

	if (!model_build(arena, &a, divided, error))
		return false;
	(*divided)->part = model->part;
	(*divided)->division = *division;
	(*divided)->whole = model;
	return true;
}

static bool is_part(
	const struct model *part, const struct model *model, const struct division *division)
{
	return part->whole == model && part->division.tensor == division->tensor &&
	       part->division.stream == division->stream &&
	       part->division.context == division->context;
}

const struct model *divided_model(
	struct divided_models *models, const struct model *model, const struct division *division)
{
	struct error error = {0};
	struct model *part;

	if (parts(division->tensor) == 1 && parts(division->context) == 1)
		return model;
	for (int i = 0; i < models->n; i++)
		if (is_part(models->of[i], model, division))
			return models->of[i];
	if (!model_divide(&models->arena, model, division, &part, &error))
		return model;
	if (models->n < DIVIDED_MOST)
		models->of[models->n++] = part;
	return part;
}

void divided_models_finish(struct divided_models *models)
{
	arena_finish(&models->arena);
	models->n = 0;
}

int64_t model_tokens(const struct model *model, int64_t sequences, int64_t seq_len)
{
	return saturated_mul(sequences, share(seq_len, parts(model->division.context)));
}

int64_t model_stream_tokens(const struct model *model, int64_t sequences, int64_t seq_len)
{
	return share(model_tokens(model, sequences, seq_len), parts(model->division.stream));
}

enum tensor_place module_tensor_place(enum module_kind kind)
{
	static const enum tensor_place places[MODULE_KIND_COUNT] = {
		[MODULE_EMBEDDING] = PLACE_INNER, /* a row-parallel look-up */
		[MODULE_RELATIVE_BIAS] = PLACE_INNER,
		[MODULE_QKV] = PLACE_COLUMN,
		[MODULE_QUERY_DOWN] = PLACE_COLUMN,
		[MODULE_QUERY_DOWN_NORM] = PLACE_COLUMN,
		[MODULE_QUERY] = PLACE_COLUMN,
		[MODULE_KEY] = PLACE_COLUMN,
		[MODULE_VALUE] = PLACE_COLUMN,
		[MODULE_KV_DOWN] = PLACE_COLUMN,
		[MODULE_KV_DOWN_NORM] = PLACE_COLUMN,
		[MODULE_KV_UP] = PLACE_COLUMN,
		[MODULE_QUERY_NORM] = PLACE_INNER,
		[MODULE_KEY_NORM] = PLACE_INNER,
		[MODULE_ATTENTION_CORE] = PLACE_INNER,
		[MODULE_ATTENTION_OUTPUT] = PLACE_INNER,
		[MODULE_GATE] = PLACE_COLUMN,
		[MODULE_UP] = PLACE_COLUMN,
		[MODULE_GATE_UP] = PLACE_COLUMN,
		[MODULE_ACTIVATION] = PLACE_INNER,
		[MODULE_DOWN] = PLACE_INNER,
		[MODULE_ROUTER] = PLACE_COLUMN,
		[MODULE_EXPERTS_GATE] = PLACE_INNER,
		[MODULE_EXPERTS_UP] = PLACE_INNER,
		[MODULE_EXPERTS_ACTIVATION] = PLACE_INNER,
		[MODULE_EXPERTS_DOWN] = PLACE_INNER,
		[MODULE_SHARED_GATE] = PLACE_INNER,
		[MODULE_SHARED_UP] = PLACE_INNER,
		[MODULE_SHARED_ACTIVATION] = PLACE_INNER,
		[MODULE_SHARED_DOWN] = PLACE_INNER,
		[MODULE_SHARED_WEIGHT] = PLACE_INNER,
		[MODULE_HEAD] = PLACE_COLUMN,
	};

	return places[kind];
}
