/* Attention's forward by cuDNN, where that was chosen for its heads and its length (struct
 * attention_choice): without a choice nothing is opened. Plans are made once for a shape and
 * kept until the end; what cuDNN refuses is ours to do. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_graph.h"
#include "kernels/cuda/backend.h"

/* What a plan is for. */
struct key {
	int64_t sequences, length, heads, kv_heads, head_dim;
	int64_t q_stride, k_stride, v_stride, out_stride;
	int64_t algorithm[6];
};

struct cuda_attention_plan {
	struct key key;
	struct attention_graph graph; /* its plan NULL: refused */
	struct cuda_attention_plan *next;
};

static struct key key_of(const struct attention *a, const struct attention_algorithm *w)
{
	return (struct key){a->sequences, a->length, a->heads, a->kv_heads, a->head_dim,
		a->q_stride, a->k_stride, a->v_stride, a->out_stride,
		{w->engine, w->kernel, w->cluster, w->stream_k, w->tile_m, w->tile_n}};
}

static const struct cudnn_api *find(const struct cuda_backend *b)
{
	return b->api->cudnn != NULL ? b->api->cudnn() : NULL;
}

/* False, and no error, where there is none that is fit. */
static bool open_cudnn(struct cuda_backend *b, struct cudnn_target *target)
{
	const struct cudnn_api *api = find(b);

	if (api == NULL || api->cudnnGetVersion() < CUDNN_LEAST_VERSION ||
		api->cudnnGetVersion() >= CUDNN_NEXT_MAJOR ||
		(b->cudnn == NULL && api->cudnnCreate(&b->cudnn) != 0)) {
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

static bool suits(const struct attention *a)
{
	return a->dtype == DTYPE_BF16 && a->head_dim % 8 == 0 && a->scale > 0.0f &&
	       a->sequences > 0 && a->length > 0 && a->heads > 0 && even(a->q, a->q_stride) &&
	       even(a->k, a->k_stride) && even(a->v, a->v_stride) && even(a->out, a->out_stride);
}

int cuda_attention_algorithms(struct kernel_context *context, const struct attention *a,
	struct attention_algorithm *algorithms, int most)
{
	struct cudnn_target target;
	struct attention_graph graph;
	int n = 0;

	if (context->error.message[0] != '\0' || !suits(a) ||
		!open_cudnn(cuda_backend(context), &target))
		return 0;
	if (attention_graph_build(&graph, &target, a))
		n = attention_graph_algorithms(&graph, context->workspace_bytes, algorithms, most);
	attention_graph_drop(&graph);
	return n;
}

/* Opened now, where there is something to choose: while a model trains memory may be short. */
void cuda_choose_attention(struct kernel_context *context, struct attention_choice *choices, int n)
{
	struct cuda_backend *b = cuda_backend(context);
	struct cudnn_target target;

	b->attention_choices = choices;
	b->n_attention_choices = n > 0 && open_cudnn(b, &target) ? n : 0;
}

/* Refused or not, it is kept. NULL: out of memory. */
static struct cuda_attention_plan *plan_of(struct kernel_context *context,
	const struct attention *a, const struct attention_algorithm *algorithm)
{
	struct cuda_backend *b = cuda_backend(context);
	const struct key key = key_of(a, algorithm);
	struct cudnn_target target;

	for (struct cuda_attention_plan *p = b->attention_plans; p != NULL; p = p->next)
		if (memcmp(&p->key, &key, sizeof(key)) == 0)
			return p;
	struct cuda_attention_plan *p = calloc(1, sizeof(*p));
	if (p == NULL || !open_cudnn(b, &target)) {
		free(p);
		return NULL;
	}
	p->key = key;
	p->next = b->attention_plans;
	b->attention_plans = p;
	if (attention_graph_build(&p->graph, &target, a) &&
		attention_graph_plan(&p->graph, algorithm) &&
		p->graph.workspace_bytes <= context->workspace_bytes)
		return p;
	attention_graph_drop(&p->graph);
	return p;
}

bool cuda_attention_by_choice(struct kernel_context *context, const struct attention *a)
{
	struct cuda_backend *b = cuda_backend(context);
	struct attention_choice *choice = NULL;

	for (int i = 0; i < b->n_attention_choices && choice == NULL; i++)
		if (b->attention_choices[i].head_dim == a->head_dim &&
			b->attention_choices[i].length == a->length)
			choice = &b->attention_choices[i];
	if (choice == NULL || context->error.message[0] != '\0' || !suits(a))
		return false;
	const struct cuda_attention_plan *p = plan_of(context, a, &choice->algorithm);
	if (p == NULL || p->graph.plan == NULL)
		return false;
	choice->taken = true;
	int status = find(b)->cudnnSetStream(b->cudnn, context->stream);
	if (status == 0)
		status = attention_graph_run(&p->graph, a, context->workspace);
	if (status != 0)
		error_set(&context->error, EXIT_CODE_FAULT,
			"cuda: cudnnBackendExecute gave cudnnStatus %d", status);
	return true;
}
