/* The part of a model that one rank has when several divide it. */
#ifndef MODELS_DIVISION_H
#define MODELS_DIVISION_H

#include "models/modules.h"

struct model;

/* How ranks divide a model between them, beside data parallelism. 0 means 1. */
struct division {
	int64_t tensor; /* ranks that cut heads, widths of MLPs and the vocabulary */
	/* Sequence parallelism: ranks that cut the tokens of the residual stream. Between a
	 * column-parallel and a row-parallel layer every one of them has all tokens. */
	int64_t stream;
	int64_t context; /* ranks that cut the tokens of a sequence */
	int64_t expert;  /* ranks that share out the experts */
	/* Ranks that cut each single expert; counts where `expert` is above 1, else `tensor`
	 * ranks do. */
	int64_t expert_tensor;
	double expert_load; /* rows of the fullest rank's experts over the mean; 0 means 1 */
	/* Rows that each expert computes over the mean: it drops what is more and pads what is
	 * less. 0: experts compute all rows. */
	double expert_capacity;
	bool keeps_room; /* there is memory for the most rows that can come, not for the expected */
	/* Each rank routes only its own tokens of the residual stream, and ranks that cut an expert
	 * gather its rows from one another (Megatron-LM). Else each of them routes all tokens. */
	bool routes_stream;
	/* With it: ranks gather the tokens of one another, and each picks the rows of its experts
	 * (Megatron-Core's all-gather dispatcher). */
	bool gathers_tokens;
	int64_t words; /* the vocabulary is padded to a multiple of it */
};

bool divisions_are_alike(const struct division *a, const struct division *b);
bool division_divides(const struct division *division);

/* The part of the model that one rank has: its own heads, widths and words. Where there are fewer
 * key and value heads than ranks, several ranks have the same ones. The caller has checked that the
 * ranks divide query heads and widths. Without padding the vocabulary may leave a remainder; then
 * this is the part of a rank that has the most words. False when model_build refuses the part. */
bool model_divide(struct arena *arena, const struct model *model, const struct division *division,
	struct model **divided, struct error *error);

/* A cache of divided models: a search asks thousands of times for the same few divisions of its
 * model and of two shorter ones. {0}: empty. */
enum { DIVIDED_MOST = 192 };
struct divided_models {
	struct arena arena; /* owns the parts */
	int n;
	const struct model *of[DIVIDED_MOST];
};
/* The part of the model that a rank has; the model itself where nothing divides it.
 * divided_before() only looks into the cache: NULL when the part is not there. divided_model() adds
 * what is not there. */
const struct model *divided_before(const struct divided_models *models, const struct model *model,
	const struct division *division);
const struct model *divided_model(
	struct divided_models *models, const struct model *model, const struct division *division);
void divided_models_finish(struct divided_models *models);

/* How many tokens of `sequences` a rank computes, and how many of these its part of the residual
 * stream has. */
int64_t model_tokens(const struct model *model, int64_t sequences, int64_t seq_len);
int64_t model_stream_tokens(const struct model *model, int64_t sequences, int64_t seq_len);
/* How many rows of each kind a rank has of `sequences`. A token makes a row for each of its
 * experts. Where tensor ranks do not cut the experts, each of them sends a part of the rows. */
struct row_counts {
	int64_t tokens, stream; /* as above */
	int64_t routed;         /* tokens whose experts the rank's router chooses */
	int64_t gathered;       /* tokens of all ranks that have the experts together */
	int64_t sent;           /* rows that the rank sends to experts, its own included */
	int64_t arrived;        /* rows that the fullest rank gets from other expert ranks */
	int64_t received;       /* rows that the experts of the fullest rank compute */
	int64_t room;           /* rows of these that there is memory for */
};
struct row_counts model_rows(const struct model *model, int64_t sequences, int64_t seq_len);
/* Does a leaf of this kind compute on the residual stream, when tensor ranks cut the model
 * (Megatron-LM, 1909.08053 and 2205.05198)? Else it stands between a column-parallel layer, which
 * reads the stream, and the row-parallel layer that writes to it again. */
bool module_is_on_stream(const struct division *division, enum module_kind kind);

/* How tensor ranks cut a parameter [out, in]. ROWS: each has some of the rows and the same part of
 * the bias (column-parallel). COLUMNS: each has some of the columns, and results are summed
 * (row-parallel). Expert ranks have some of the experts, which are rows. */
enum tensor_cut { CUT_NOT, CUT_ROWS, CUT_COLUMNS };
enum tensor_cut module_cut(enum module_kind kind);

/* Elements that follow one another both in a rank's part of a parameter and in the whole one. */
struct parameter_run {
	int64_t whole; /* index of the first one in the whole parameter; -1: padding, which is 0 */
	int64_t n;
};
/* The run that begins at `element` of rank's part, at most `most` long. `rank` counts tensor ranks,
 * or expert ranks where these share out whole experts. */
struct parameter_run model_parameter_run(
	const struct model *part, int parameter, int64_t rank, int64_t element, int64_t most);

/* The inverse: which rank's part holds elements of the whole parameter, and from which of its
 * elements on. Of several ranks that hold them, the first. */
struct parameter_holder {
	int64_t rank, element, n;
};
/* The run that begins at element `whole` of the whole parameter, at most `most` long. */
struct parameter_holder model_parameter_holder(
	const struct model *part, int parameter, int64_t whole, int64_t most);

/* How many different parts there are: one for each tensor rank or expert rank. */
int64_t model_parts(const struct model *part);
/* Has a rank only a part of the parameter? */
bool model_parameter_is_cut(const struct model *part, int parameter);
/* Words whose rows the rank has: the first one, and how many (perhaps none). */
int64_t model_first_word(const struct model *part, int64_t rank);
int64_t model_words(const struct model *part, int64_t rank);

/* Do experts compute rows of other ranks? */
bool division_sends_rows(const struct division *division);

#endif
