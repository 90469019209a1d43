/* A pass of attention by cuDNN, where that was chosen for its heads and its length (struct
 * attention_choice): without a choice nothing is opened. Plans are made once for a shape and
 * kept until the end; what cuDNN refuses is ours to do.
 *
 * The backward is done in equal parts, as many heads of as many sequences as the workspace holds.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_graph.h"
#include "kernels/cuda/backend.h"

/* Says what a plan is for. */
struct key {
	int64_t pass, sequences, length, heads, kv_heads, head_dim;
	int64_t q_stride, k_stride, v_stride, out_stride, lse_stride;
	int64_t dout_stride, dq_stride, dk_stride, dv_stride;
	int64_t algorithm[7];
};

struct cuda_attention_plan {
	struct key key;
	struct attention_graph graph; /* its plan NULL: refused */
	struct cuda_attention_plan *next;
};

static struct key key_of(enum attention_pass pass, const struct attention_call *call,
	const struct attention_algorithm *w)
{
	const struct attention_backward *b = &call->of;
	const struct attention *a = &b->forward;

	return (struct key){pass, a->sequences, a->length, a->heads, a->kv_heads, a->head_dim,
		a->q_stride, a->k_stride, a->v_stride, a->out_stride, call->lse_stride,
		b->dout_stride, b->dq_stride, b->dk_stride, b->dv_stride,
		{w->engine, w->kernel, w->cluster, w->stream_k, w->tile_m, w->tile_n, w->stages}};
}

static const struct cudnn_api *find(const struct cuda_backend *b)
{
	return b->api->cudnn != NULL ? b->api->cudnn() : NULL;
}

/* Each pass needs at least this version. */
static const size_t least_version[ATTENTION_PASSES] = {
	[ATTENTION_FORWARD] = CUDNN_LEAST_VERSION,
	[ATTENTION_BACKWARD] = CUDNN_LEAST_BACKWARD,
};

/* False, and no error, where there is none that is fit. */
static bool open_cudnn(
	struct cuda_backend *b, enum attention_pass pass, struct cudnn_target *target)
{
	const struct cudnn_api *api = find(b);

	if (api == NULL || api->cudnnGetVersion() < least_version[pass] ||
		api->cudnnGetVersion() >= CUDNN_NEXT_MAJOR)
		return false;
	if (b->cudnn == NULL && api->cudnnCreate(&b->cudnn) != 0) {
		b->cudnn = NULL;
		return false;
	}
	*target = (struct cudnn_target){api, b->cudnn, NULL};
	return true;
}

void cuda_close_attention(struct cuda_backend *b)
{
	while (b->attention_plans != NULL) {
		struct cuda_attention_plan *p = b->attention_plans;

		b->attention_plans = p->next;
		attention_graph_drop(&p->graph);
		free(p);
	}
	if (b->cudnn != NULL)
		find(b)->cudnnDestroy(b->cudnn);
	b->cudnn = NULL;
}

int64_t cuda_attention_version(struct kernel_context *context)
{
	const struct cudnn_api *api = find(cuda_backend(context));

	return api != NULL ? (int64_t)api->cudnnGetVersion() : 0;
}

static bool even(const void *x, int64_t stride)
{
	return cuda_aligned(x) && stride % 8 == 0;
}

static bool suits(enum attention_pass pass, const struct attention_backward *b)
{
	const struct attention *a = &b->forward;

	if (a->dtype != DTYPE_BF16 || a->head_dim % 8 != 0 || a->scale <= 0.0f ||
		a->sequences <= 0 || a->length <= 0 || a->heads <= 0 || !even(a->q, a->q_stride) ||
		!even(a->k, a->k_stride) || !even(a->v, a->v_stride) ||
		!even(a->out, a->out_stride))
		return false;
	return pass == ATTENTION_FORWARD ||
	       (even(b->dout, b->dout_stride) && even(b->dq, b->dq_stride) &&
		       even(b->dk, b->dk_stride) && even(b->dv, b->dv_stride));
}

int cuda_attention_algorithms(struct kernel_context *context, enum attention_pass pass,
	const struct attention_backward *shape, struct attention_algorithm *algorithms,
	int64_t *workspace_bytes, int most)
{
	const struct attention_call call = {*shape, shape->forward.heads};
	const int64_t limit = pass == ATTENTION_FORWARD ? context->workspace_bytes : INT64_MAX;
	struct cudnn_target target;
	struct attention_graph graph;
	int n = 0;

	if (context->error.message[0] != '\0' || !suits(pass, shape) ||
		!open_cudnn(cuda_backend(context), pass, &target))
		return 0;
	if (attention_graph_build(&graph, &target, pass, &call))
		n = attention_graph_algorithms(&graph, limit, algorithms, workspace_bytes, most);
	attention_graph_drop(&graph);
	return n;
}

/* Opened now, where there is something to choose: while a model trains memory may be short. */
void cuda_choose_attention(struct kernel_context *context, struct attention_choice *choices, int n)
{
	struct cuda_backend *b = cuda_backend(context);
	struct cudnn_target target;

	b->attention_choices = choices;
	b->n_attention_choices = n > 0 && open_cudnn(b, ATTENTION_FORWARD, &target) ? n : 0;
}

/* Refused or not, it is kept. NULL: out of memory, or there is no library. */
static struct cuda_attention_plan *plan_of(struct kernel_context *context, enum attention_pass pass,
	const struct attention_call *call, const struct attention_algorithm *algorithm)
{
	struct cuda_backend *b = cuda_backend(context);
	const struct key key = key_of(pass, call, algorithm);
	struct cudnn_target target;

	for (struct cuda_attention_plan *p = b->attention_plans; p != NULL; p = p->next)
		if (memcmp(&p->key, &key, sizeof(key)) == 0)
			return p;
	struct cuda_attention_plan *p = calloc(1, sizeof(*p));
	if (p == NULL || !open_cudnn(b, pass, &target)) {
		free(p);
		return NULL;
	}
	p->key = key;
	p->next = b->attention_plans;
	b->attention_plans = p;
	if (attention_graph_build(&p->graph, &target, pass, call) &&
		attention_graph_plan(&p->graph, algorithm) &&
		p->graph.workspace_bytes <= context->workspace_bytes)
		return p;
	attention_graph_drop(&p->graph);
	return p;
}

static struct attention_choice *choice_of(const struct kernel_context *context,
	enum attention_pass pass, const struct attention_backward *of)
{
	const struct cuda_backend *b = cuda_backend(context);

	for (int i = 0; i < b->n_attention_choices; i++) {
		struct attention_choice *choice = &b->attention_choices[i];

		if (choice->pass == pass && choice->head_dim == of->forward.head_dim &&
			choice->length == of->forward.length)
			return context->error.message[0] == '\0' && suits(pass, of) ? choice : NULL;
	}
	return NULL;
}

/* False: it is ours to do. */
static bool run_call(struct kernel_context *context, enum attention_pass pass,
	const struct attention_call *call, struct attention_choice *choice)
{
	struct cuda_backend *b = cuda_backend(context);
	const struct cuda_attention_plan *p = plan_of(context, pass, call, &choice->algorithm);

	if (p == NULL || p->graph.plan == NULL)
		return false;
	if (context->error.message[0] != '\0')
		return true;
	choice->taken = true;
	int status = find(b)->cudnnSetStream(b->cudnn, context->stream);
	if (status == 0)
		status = attention_graph_run(&p->graph, call, context->workspace);
	if (status != 0)
		error_set(&context->error, EXIT_CODE_FAULT,
			"cuda: cudnnBackendExecute gave cudnnStatus %d", status);
	return true;
}

bool cuda_attention_by_choice(struct kernel_context *context, const struct attention *a)
{
	const struct attention_call call = {.of.forward = *a, .lse_stride = a->heads};
	struct attention_choice *choice = choice_of(context, ATTENTION_FORWARD, &call.of);

	return choice != NULL && run_call(context, ATTENTION_FORWARD, &call, choice);
}

/* The largest number of equal parts' size that is not above `most`; 0: there is none. */
static int64_t equal_part(int64_t n, int64_t most)
{
	int64_t part = min_i64(n, most);

	while (part > 0 && n % part != 0)
		part--;
	return part;
}

bool cuda_attention_backward_by_choice(
	struct kernel_context *context, const struct attention_backward *b)
{
	const struct attention *f = &b->forward;
	struct attention_choice *choice = choice_of(context, ATTENTION_BACKWARD, b);

	if (choice == NULL || f->kv_heads <= 0)
		return false;
	int64_t ratio = f->heads / f->kv_heads;
	int64_t bytes = ratio > 1 ? choice->shared_bytes : choice->head_bytes;
	int64_t fit = context->workspace_bytes / max_i64(1, ratio * bytes);
	struct attention_part part = {.groups = equal_part(f->kv_heads, fit)};
	if (part.groups == 0)
		return false;
	part.sequences =
		part.groups < f->kv_heads ? 1 : equal_part(f->sequences, fit / f->kv_heads);
	for (part.first_sequence = 0; part.first_sequence < f->sequences;
		part.first_sequence += part.sequences)
		for (part.first_group = 0; part.first_group < f->kv_heads;
			part.first_group += part.groups) {
			const struct attention_call call = {cuda_attention_part(b, part), f->heads};

			/* Parts are alike: the first one tells for all. */
			if (!run_call(context, ATTENTION_BACKWARD, &call, choice))
				return false;
		}
	return true;
}
