/* Causal attention, forward. For each head, a tile of queries meets one tile of keys after the
 * other; its row maxima, row sums and unnormalised outputs are carried along (Dao 2022). All
 * products run on the register tile; compiled with -ffp-contract=fast. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/threads.h"

struct tile {
	int64_t width;      /* padded_width(head_dim) */
	int64_t keys;       /* keys per tile */
	float *query;       /* [QUERY_TILE, head_dim + ROW_PADDING], times scale */
	float *score;       /* [QUERY_TILE, SCORE_ROW]: scores, then probabilities */
	float *plain;       /* [keys, head_dim], widened from bf16 */
	float *key, *value; /* packed [head_dim, keys] and [keys, head_dim] */
	float *out;         /* [QUERY_TILE, width], unnormalised */
	float top[QUERY_TILE], sum[QUERY_TILE];
};

/* Returns how many floats of the workspace the tile takes. */
static int64_t init_tile(struct tile *tile, float *start, const struct attention *a)
{
	float *workspace = start;

	tile->width = padded_width(a->head_dim);
	tile->keys = attention_keys(a->head_dim);
	tile->query = take(&workspace, QUERY_TILE * (a->head_dim + ROW_PADDING));
	tile->score = take(&workspace, QUERY_TILE * SCORE_ROW);
	tile->plain = take(&workspace, tile->keys * a->head_dim);
	tile->key = take(&workspace, packed_size(a->head_dim, tile->keys));
	tile->value = take(&workspace, packed_size(tile->keys, a->head_dim));
	tile->out = take(&workspace, QUERY_TILE * tile->width);
	return workspace - start;
}

/* Scores [rows, keys] of queries that start `ahead` positions after the first key. */
static void scores(const struct attention *a, const struct tile *tile, int64_t rows, int64_t keys,
	int64_t ahead)
{
	CPU(multiply)
	(&(struct product){
		.m = rows,
		.n = (keys + TILE_COLS - 1) / TILE_COLS * TILE_COLS,
		.k = a->head_dim,
		.a = tile->query,
		.a_row = a->head_dim + ROW_PADDING,
		.a_step = 1,
		.b = tile->key,
		.c = tile->score,
		.ldc = SCORE_ROW,
		.end_column = ahead,
		.end_term = NO_END,
		.begin_term = NO_BEGIN,
	});
}

/* Turns the first `valid` scores of a row into probabilities against the row's running maximum,
 * zeros the rest up to `keys`, and rescales what the row has gathered so far. */
static void softmax_row(struct tile *tile, int64_t i, int64_t valid, int64_t keys)
{
	float *x = tile->score + i * SCORE_ROW, top, factor;
	vec most = splat(tile->top[i]), sum = {0};

	for (int64_t j = 0; j < valid; j += LANES) {
		vec v = load(x + j);
		if (valid - j < LANES)
			v = select_vec(first_lanes(valid - j), v, splat(-INFINITY));
		most = max_vec(v, most);
	}
	top = max_lanes(most);
	for (int64_t j = 0; j < valid; j += LANES) {
		vec p = keep_some(exp_vec(load(x + j) - top), valid - j);
		store(x + j, p);
		sum += p;
	}
	for (int64_t j = (valid + LANES - 1) / LANES * LANES; j < keys; j += LANES)
		store(x + j, (vec){0});
	factor = exp_vec(splat(tile->top[i]) - top)[0];
	tile->sum[i] = tile->sum[i] * factor + sum_lanes(sum);
	if (tile->top[i] != -INFINITY && factor != 1.0f) {
		for (int64_t j = 0; j < tile->width; j += LANES) {
			float *out = tile->out + i * tile->width + j;
			store(out, load(out) * factor);
		}
	}
	tile->top[i] = top;
}

/* out += probabilities * values; the first tile of keys (`accumulate` false) starts it. */
static void gather(const struct attention *a, const struct tile *tile, int64_t rows, int64_t keys,
	int64_t ahead, bool accumulate)
{
	(void)a;
	CPU(multiply)
	(&(struct product){
		.m = rows,
		.n = tile->width,
		.k = keys,
		.a = tile->score,
		.a_row = SCORE_ROW,
		.a_step = 1,
		.b = tile->value,
		.c = tile->out,
		.ldc = tile->width,
		.accumulate = accumulate,
		.end_column = NO_END,
		.end_term = ahead,
		.begin_term = NO_BEGIN,
	});
}

/* Begins with what earlier rounds have found of a row: all their keys count as one, of weight
 * exp(lse). */
static void begin_rows(
	const struct attention *a, struct tile *tile, int64_t row, int64_t rows, int64_t head)
{
	for (int64_t i = 0; i < rows; i++) {
		tile->top[i] = -INFINITY;
		tile->sum[i] = 0.0f;
		if (!goes_on(a))
			continue;
		const float *from = a->running + (row + i) * a->out_stride + head * a->head_dim;
		float *out = tile->out + i * tile->width;
		tile->top[i] = a->lse[(row + i) * a->heads + head];
		tile->sum[i] = 1.0f;
		memset(out, 0, (size_t)tile->width * sizeof(*out));
		memcpy(out, from, (size_t)a->head_dim * sizeof(*out));
	}
}

INLINE void write_rows(const enum dtype dtype, const struct attention *a, void *to,
	const struct tile *tile, int64_t row, int64_t rows, int64_t head)
{
	for (int64_t i = 0; i < rows; i++) {
		int64_t out = (row + i) * a->out_stride + head * a->head_dim;
		const float *from = tile->out + i * tile->width;
		float factor = 1.0f / tile->sum[i];

		for (int64_t j = 0; j < a->head_dim; j += LANES)
			store_as(dtype, to, out + j, load(from + j) * factor, a->head_dim - j);
		a->lse[(row + i) * a->heads + head] =
			(float)((double)tile->top[i] + log((double)tile->sum[i]));
	}
}

static void load_keys(
	const struct attention *a, struct tile *tile, int64_t row, int64_t keys, int64_t kv)
{
	int64_t stride;
	const float *k = plain_rows(a, tile->plain,
		&(struct rows){a->k, row * a->k_stride + kv, a->k_stride, keys}, &stride);

	CPU(pack)(tile->key, k, stride, true, a->head_dim, keys);
	const float *v = plain_rows(a, tile->plain,
		&(struct rows){a->v, row * a->v_stride + kv, a->v_stride, keys}, &stride);
	CPU(pack)(tile->value, v, stride, false, keys, a->head_dim);
}

/* One tile of queries of one head; `start` is the sequence's first row, `query` counts from it. */
static void query_tile(
	const struct attention *a, struct tile *tile, int64_t start, int64_t query, int64_t head)
{
	int64_t rows = smaller(QUERY_TILE, a->length - query);
	int64_t position = a->first + query, end = keys_end(a, position + rows);
	int64_t kv = head / (a->heads / a->kv_heads) * a->head_dim;

	copy_rows(a, tile->query, a->head_dim + ROW_PADDING,
		&(struct rows){a->q, (start + query) * a->q_stride + head * a->head_dim,
			a->q_stride, rows},
		a->scale);
	begin_rows(a, tile, start + query, rows, head);
	for (int64_t key = 0, keys; key < end; key += keys) {
		keys = keys_together(a, key, smaller(tile->keys, end - key));
		load_keys(a, tile, key_row(a, start, key), keys, kv);
		scores(a, tile, rows, keys, position - key);
		for (int64_t i = 0; i < rows; i++)
			softmax_row(tile, i, smaller(keys, position + i - key + 1), keys);
		gather(a, tile, rows, keys, position - key, key > 0 || goes_on(a));
	}
	if (a->in_rounds && !a->ends)
		write_rows(DTYPE_FP32, a, a->running, tile, start + query, rows, head);
	else
		BY_DTYPE(write_rows, a->dtype, a, a->out, tile, start + query, rows, head);
}

/* Tiles of queries are independent; `task` counts them over sequences, heads, tiles. */
static void run_task(const struct attention *a, struct tile *tile, int64_t task)
{
	int64_t tiles = (a->length + QUERY_TILE - 1) / QUERY_TILE, row = task / tiles;

	query_tile(a, tile, row / a->heads * a->length, task % tiles * QUERY_TILE, row % a->heads);
}

void CPU(attention)(struct kernel_context *context, const struct attention *a)
{
	int64_t tiles = (a->length + QUERY_TILE - 1) / QUERY_TILE;
	int64_t tasks = a->sequences * a->heads * tiles;
	struct tile tile;
	int threads = usable_threads(context, tasks, init_tile(&tile, context->workspace, a));

	if (threads == 1) {
		for (int64_t task = 0; task < tasks; task++)
			run_task(a, &tile, task);
		return;
	}
#pragma omp parallel num_threads(threads)
	{
		struct tile own;

		init_tile(&own, thread_workspace(context, threads), a);
#pragma omp for schedule(dynamic)
		for (int64_t task = 0; task < tasks; task++)
			run_task(a, &own, task);
	}
}
