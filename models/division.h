/* What one rank has of a model that several divide between them. */
#ifndef MODELS_DIVISION_H
#define MODELS_DIVISION_H

#include "models/modules.h"

struct model;

/* How the ranks of a model divide it between them, beside data parallelism. 0 means 1. */
struct division {
	int64_t tensor;  /* heads, widths of MLPs and the vocabulary are cut over so many */
	int64_t stream;  /* and the tokens of the residual stream: sequence parallelism. Between
			    the column-parallel and the row-parallel layers every rank has all of
			    them */
	int64_t context; /* the tokens of a sequence are cut over so many */
	int64_t expert;  /* the experts are cut over so many, each of which is whole or cut over */
	int64_t expert_tensor; /* so many, where `expert` is above 1; else over `tensor` */
	double expert_load; /* rows that the fullest rank's experts get over the mean; 0 means 1 */
	double expert_capacity; /* rows of every expert over the mean: more are dropped, fewer are
				   padded; 0: all are computed */
	bool keeps_room; /* memory for rows is for the most that can come, whatever is expected */
	bool routes_stream; /* each rank routes its tokens of the residual stream alone, and ranks
			       that cut an expert gather its rows from one another (Megatron-LM);
			       else each of them routes all tokens */
	int64_t words;      /* the vocabulary is padded to a multiple of it */
};

bool divisions_are_alike(const struct division *a, const struct division *b);
bool division_divides(const struct division *division);

/* What one of the ranks that divide the model has: heads, widths and words of its own. Key and
 * value heads are repeated where there are fewer than ranks. The vocabulary may have a remainder
 * unless it is padded: the largest part stands for all. Heads and widths must divide. */
bool model_divide(struct arena *arena, const struct model *model, const struct division *division,
	struct model **divided, struct error *error);
/* Models that were divided before: a search asks for few divisions, thousands of times, of its
 * model and of two shorter ones. {0}: none. */
enum { DIVIDED_MOST = 192 };
struct divided_models {
	struct arena arena; /* of the parts */
	int n;
	const struct model *of[DIVIDED_MOST];
};
/* What a rank has of the model; the model itself where nothing divides it. The first adds nothing
 * to those that there are: NULL when it is none of them. */
const struct model *divided_before(const struct divided_models *models, const struct model *model,
	const struct division *division);
const struct model *divided_model(
	struct divided_models *models, const struct model *model, const struct division *division);
void divided_models_finish(struct divided_models *models);
/* Tokens of `sequences` that a rank computes, and those of them on the residual stream. */
int64_t model_tokens(const struct model *model, int64_t sequences, int64_t seq_len);
int64_t model_stream_tokens(const struct model *model, int64_t sequences, int64_t seq_len);
/* How many rows of each kind a rank has of `sequences`. Every token makes one for each of its
 * experts. Where experts are whole and tensor ranks are several, each of these sends its part. */
struct row_counts {
	int64_t tokens, stream; /* as above */
	int64_t routed;         /* tokens, of which the rank's router chooses the experts */
	int64_t sent;           /* to experts, here or on other ranks */
	int64_t arrived;        /* from other expert ranks: of the fullest rank */
	int64_t received;       /* that the rank's experts compute, of it too */
	int64_t room;           /* for so many of these there is memory */
};
struct row_counts model_rows(const struct model *model, int64_t sequences, int64_t seq_len);
/* Of leaves that are cut over tensor ranks (Megatron-LM, 1909.08053 and 2205.05198): does it
 * compute on the residual stream, not between a column-parallel layer, which reads the stream, and
 * the row-parallel one that returns to it? */
bool module_is_on_stream(const struct division *division, enum module_kind kind);
/* Elements of a parameter that lie one behind the other in a rank's part of it and in the whole. */
struct parameter_run {
	int64_t whole; /* the first one's number in the whole parameter; -1: padding, which is 0 */
	int64_t n;
};
/* Of tensor rank `rank`, or expert rank where whole experts are cut over several, from an element
 * of its part on; `most` of them or fewer. */
struct parameter_run model_parameter_run(
	const struct model *part, int parameter, int64_t rank, int64_t element, int64_t most);
/* Where that run of the whole lies: in whose part, from which of its elements on. Of several ranks
 * that have it, the first. */
struct parameter_holder {
	int64_t rank, element, n;
};
/* From element `whole` of the whole parameter on, `most` of them or fewer. */
struct parameter_holder model_parameter_holder(
	const struct model *part, int parameter, int64_t whole, int64_t most);
/* How many different parts there are: of tensor ranks, or of expert ranks. */
int64_t model_parts(const struct model *part);
/* Or has every rank all of it? */
bool model_parameter_is_cut(const struct model *part, int parameter);
/* Words that the rank has the rows of: the first, and how many, which may be none. */
int64_t model_first_word(const struct model *part, int64_t rank);
int64_t model_words(const struct model *part, int64_t rank);
/* Do experts compute rows of other ranks? */
bool division_sends_rows(const struct division *division);

#endif
