/* What one rank has of a model that several divide between them. */
#include <math.h>

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

/* Ranks that an expert is cut over. */
static int64_t expert_parts(const struct division *division)
{
	return parts(division->expert) > 1 ? parts(division->expert_tensor)
					   : parts(division->tensor);
}

static struct architecture share_of(
	const struct architecture *whole, const struct division *division)
{
	struct architecture a = *whole;
	int64_t n = parts(division->tensor);

	a.heads = share(a.heads, n);
	a.kv_heads = share(a.kv_heads, n);
	a.ffn = share(a.ffn, n);
	a.expert_ffn = share(a.expert_ffn, expert_parts(division));
	a.experts_held = share(a.experts, parts(division->expert));
	a.shared_ffn = share(a.shared_ffn, n);
	a.vocab = share(round_up(a.vocab, parts(division->words)), n);
	a.adapter_parts = n;
	return a;
}

bool model_divide(struct arena *arena, const struct model *model, const struct division *division,
	struct model **divided, struct error *error)
{
	const struct architecture a = share_of(&model->architecture, division);

	if (!model_build(arena, &a, divided, error))
		return false;
	(*divided)->part = model->part;
	(*divided)->division = *division;
	(*divided)->whole = model;
	return true;
}

/* One rank that has all experts has all of their rows. */
static double load_of(const struct division *division)
{
	return parts(division->expert) > 1 && division->expert_load > 0 ? division->expert_load : 1;
}

static double capacity_of(const struct division *division)
{
	return parts(division->expert) > 1 ? division->expert_capacity : 0;
}

bool divisions_are_alike(const struct division *a, const struct division *b)
{
	return parts(a->tensor) == parts(b->tensor) && parts(a->stream) == parts(b->stream) &&
	       parts(a->context) == parts(b->context) && parts(a->expert) == parts(b->expert) &&
	       expert_parts(a) == expert_parts(b) && load_of(a) == load_of(b) &&
	       capacity_of(a) == capacity_of(b) && a->routes_stream == b->routes_stream &&
	       a->gathers_tokens == b->gathers_tokens && a->keeps_room == b->keeps_room &&
	       parts(a->words) == parts(b->words);
}

bool division_divides(const struct division *division)
{
	return parts(division->tensor) > 1 || parts(division->context) > 1 ||
	       parts(division->expert) > 1 || parts(division->words) > 1;
}

static bool is_part(
	const struct model *part, const struct model *model, const struct division *division)
{
	return part->whole == model && divisions_are_alike(&part->division, division);
}

const struct model *divided_before(const struct divided_models *models, const struct model *model,
	const struct division *division)
{
	if (!division_divides(division))
		return model;
	for (int i = 0; i < models->n; i++)
		if (is_part(models->of[i], model, division))
			return models->of[i];
	return NULL;
}

const struct model *divided_model(
	struct divided_models *models, const struct model *model, const struct division *division)
{
	const struct model *before = divided_before(models, model, division);
	struct error error = {0};
	struct model *part;

	if (before != NULL)
		return before;
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

/* Megatron-LM's get_capacity: of every expert, for the tokens of one rank. */
static int64_t padded_rows(const struct model *model, int64_t rows)
{
	int64_t experts = parts(model->architecture.experts);
	double each = ceil((double)rows / (double)experts * capacity_of(&model->division));

	return saturated_mul((int64_t)fmin(each, (double)SATURATED_SIZE), experts);
}

static int64_t loaded_rows(const struct division *division, int64_t rows)
{
	double most = ceil((double)rows * load_of(division));

	return min_i64((int64_t)fmin(most, (double)SATURATED_SIZE), SATURATED_SIZE);
}

/* Every token of all expert ranks, for each of its experts that the rank may hold. */
static int64_t most_rows(const struct model *model, int64_t sent)
{
	const struct architecture *a = &model->architecture;
	int64_t experts = parts(model->division.expert);
	int64_t here = min_i64(a->experts_per_token, share(a->experts, experts));

	return saturated_mul(saturated_mul(sent / parts(a->experts_per_token), here), experts);
}

struct row_counts model_rows(const struct model *model, int64_t sequences, int64_t seq_len)
{
	const struct division *division = &model->division;
	int64_t tokens = model_tokens(model, sequences, seq_len);
	int64_t stream = model_stream_tokens(model, sequences, seq_len);
	int64_t each = expert_parts(division), gathered = division->routes_stream ? each : 1;
	int64_t copies = division->routes_stream ? 1 : parts(division->tensor) / each;
	int64_t routed = division->routes_stream ? stream : tokens;
	int64_t sent = saturated_mul(share(routed, copies), model->architecture.experts_per_token);
	bool pads = capacity_of(division) > 0;
	int64_t arrived = pads ? padded_rows(model, sent) : loaded_rows(division, sent);
	int64_t received = saturated_mul(arrived, gathered);
	bool picks = division->gathers_tokens; /* all rows of its experts */

	return (struct row_counts){
		.tokens = tokens,
		.stream = stream,
		.routed = routed,
		.gathered = saturated_mul(routed, saturated_mul(each, parts(division->expert))),
		.sent = picks  ? received
			: pads ? arrived
			       : sent,
		.arrived = arrived,
		.received = received,
		.room = division->keeps_room ? most_rows(model, sent) : received,
	};
}

bool division_sends_rows(const struct division *division)
{
	return parts(division->expert) > 1 ||
	       (division->routes_stream && parts(division->tensor) > 1);
}

/* Experts of routed rows too: what they return is on it again. */
static bool is_routed(enum module_kind kind)
{
	return kind == MODULE_ROUTER || kind == MODULE_SHARED_WEIGHT ||
	       kind == MODULE_EXPERTS_ACTIVATION || module_kind_is_of_experts(kind);
}

bool module_is_on_stream(const struct division *division, enum module_kind kind)
{
	if (division->routes_stream && is_routed(kind))
		return true;
	return kind == MODULE_NORM || kind == MODULE_EMBEDDING_NORM ||
	       kind == MODULE_POSITION_EMBEDDING || kind == MODULE_EMBEDDING_PROJECTION ||
	       kind == MODULE_HEAD_PROJECTION || kind == MODULE_NEXT_PROJECTION;
}
