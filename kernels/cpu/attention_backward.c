/* Causal attention, backward. A tile of keys gathers its dk and dv from all later queries; dq grows
 * by one tile of keys after the other, in order (bf16: and is rounded with each). Formulas:
 * tests/kernels/reference/attention.c. Compiled with -ffp-contract=fast. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/threads.h"

struct tile {
	int64_t width, keys, row; /* padded head_dim; keys per tile; stride of query and dout */
	float *query, *dout;      /* [QUERY_TILE, row] */
	float *packed_query, *packed_dout;  /* [QUERY_TILE, head_dim] */
	float *score, *dscore;              /* [QUERY_TILE, SCORE_ROW] */
	float *key_columns, *value_columns; /* packed [head_dim, keys] */
	float *key_rows;                    /* packed [keys, head_dim] */
	float *dkey, *dvalue;               /* [keys, width] */
	float *plain;                       /* [keys, head_dim], widened from bf16 */
	float *dquery;                      /* [QUERY_TILE, width], of one tile of keys, bf16 */
	float delta[QUERY_TILE], lse[QUERY_TILE];
};

/* Where a tile of queries stands: rows of the sequence, and how far ahead of the first key. */
struct place {
	int64_t start;       /* row of the sequence's first token */
	int64_t key, keys;   /* of the sequence */
	int64_t query, rows; /* of the rank's part of the sequence, */
	int64_t position;    /* and where the first one is in it */
	int64_t head, kv;    /* query head, kv head */
};

/* Returns how many floats of the workspace the tile takes. */
static int64_t init_tile(struct tile *tile, float *start, const struct attention *a)
{
	float *workspace = start;

	tile->width = padded_width(a->head_dim);
	tile->keys = attention_keys(a->head_dim);
	tile->row = a->head_dim + ROW_PADDING;
	tile->query = take(&workspace, QUERY_TILE * tile->row);
	tile->dout = take(&workspace, QUERY_TILE * tile->row);
	tile->packed_query = take(&workspace, packed_size(QUERY_TILE, a->head_dim));
	tile->packed_dout = take(&workspace, packed_size(QUERY_TILE, a->head_dim));
	tile->score = take(&workspace, QUERY_TILE * SCORE_ROW);
	tile->dscore = take(&workspace, QUERY_TILE * SCORE_ROW);
	tile->key_columns = take(&workspace, packed_size(a->head_dim, tile->keys));
	tile->value_columns = take(&workspace, packed_size(a->head_dim, tile->keys));
	tile->key_rows = take(&workspace, packed_size(tile->keys, a->head_dim));
	tile->dkey = take(&workspace, tile->keys * tile->width);
	tile->dvalue = take(&workspace, tile->keys * tile->width);
	tile->plain = take(&workspace, tile->keys * a->head_dim);
	tile->dquery = take(&workspace, QUERY_TILE * tile->width);
	return workspace - start;
}

/* Multiplies an fp32 row with elements [at, at + n). */
INLINE float dot(const enum dtype dtype, const float *a, const void *b, int64_t at, int64_t n)
{
	vec sum = {0};

	for (int64_t j = 0; j < n; j += LANES)
		sum += load_some(a + j, n - j) * load_as(dtype, b, at + j, n - j);
	return sum_lanes(sum);
}

/* Brings one tile of queries, its dout and its row scalars close. */
static void load_queries(
	const struct attention_backward *b, struct tile *tile, const struct place *place)
{
	const struct attention *a = &b->forward;
	int64_t row = place->start + place->query, offset = place->head * a->head_dim;
	const struct rows q = {a->q, row * a->q_stride + offset, a->q_stride, place->rows};
	const struct rows dout = {
		b->dout, row * b->dout_stride + offset, b->dout_stride, place->rows};

	copy_rows(a, tile->query, tile->row, &q, 1.0f);
	copy_rows(a, tile->dout, tile->row, &dout, 1.0f);
	CPU(pack)(tile->packed_query, tile->query, tile->row, false, place->rows, a->head_dim);
	CPU(pack)(tile->packed_dout, tile->dout, tile->row, false, place->rows, a->head_dim);
	for (int64_t i = 0; i < place->rows; i++) {
		int64_t out = (row + i) * a->out_stride + offset;

		tile->delta[i] = BY_DTYPE(
			dot, a->dtype, tile->dout + i * tile->row, a->out, out, a->head_dim);
		tile->lse[i] = a->lse[(row + i) * a->heads + place->head];
	}
}

/* score = q k^T or dscore = dout v^T. */
static void query_by_key(const struct tile *tile, const struct place *place, int64_t head_dim,
	const float *query, const float *packed, float *score)
{
	CPU(multiply)
	(&(struct product){
		.m = place->rows,
		.n = (place->keys + TILE_COLS - 1) / TILE_COLS * TILE_COLS,
		.k = head_dim,
		.a = query,
		.a_row = tile->row,
		.a_step = 1,
		.b = packed,
		.c = score,
		.ldc = SCORE_ROW,
		.end_column = place->position - place->key,
		.end_term = NO_END,
		.begin_term = NO_BEGIN,
	});
}

/* A row of scores becomes probabilities, a row of dscore the gradient of the scores. */
static void row_gradients(
	const struct tile *tile, int64_t i, int64_t valid, int64_t keys, float scale)
{
	float *p = tile->score + i * SCORE_ROW, *d = tile->dscore + i * SCORE_ROW;
	float lse = tile->lse[i], delta = tile->delta[i];

	for (int64_t j = 0; j < valid; j += LANES) {
		vec probability = keep_some(exp_vec(load(p + j) * scale - lse), valid - j);
		vec gradient = probability * (load(d + j) - delta) * scale;

		store(p + j, probability);
		store(d + j, keep_some(gradient, valid - j));
	}
	for (int64_t j = valid <= 0 ? 0 : (valid + LANES - 1) / LANES * LANES; j < keys;
		j += LANES) {
		store(p + j, (vec){0});
		store(d + j, (vec){0});
	}
}

/* dkey += dscore^T query, or dvalue += score^T dout. */
static void key_by_head(const struct tile *tile, const struct place *place, const float *score,
	const float *packed, float *gradient)
{
	CPU(multiply)
	(&(struct product){
		.m = place->keys,
		.n = tile->width,
		.k = place->rows,
		.a = score,
		.a_row = 1,
		.a_step = SCORE_ROW,
		.b = packed,
		.c = gradient,
		.ldc = tile->width,
		.accumulate = true,
		.end_column = NO_END,
		.end_term = NO_END,
		.begin_term = place->key - place->position,
	});
}

INLINE void write_row(const enum dtype dtype, void *to, int64_t at, const float *from,
	int64_t width, bool accumulate)
{
	for (int64_t j = 0; j < width; j += LANES) {
		vec v = load_some(from + j, width - j);

		if (accumulate)
			v = load_as(dtype, to, at + j, width - j) + v;
		store_as(dtype, to, at + j, v, width - j);
	}
}

/* dq (= | +=) dscore key: fp32 gradients grow in place. */
static void query_gradient(
	const struct attention_backward *b, const struct tile *tile, const struct place *place)
{
	const struct attention *a = &b->forward;
	bool in_place = a->dtype == DTYPE_FP32;
	int64_t at = (place->start + place->query) * b->dq_stride + place->head * a->head_dim;

	CPU(multiply)
	(&(struct product){
		.m = place->rows,
		.n = a->head_dim,
		.k = place->keys,
		.a = tile->dscore,
		.a_row = SCORE_ROW,
		.a_step = 1,
		.b = tile->key_rows,
		.c = in_place ? (float *)b->dq + at : tile->dquery,
		.ldc = in_place ? b->dq_stride : tile->width,
		.accumulate = in_place && (place->key > 0 || goes_on(a)),
		.end_column = NO_END,
		.end_term = place->position - place->key,
		.begin_term = NO_BEGIN,
	});
	for (int64_t i = 0; i < place->rows && !in_place; i++)
		write_row(DTYPE_BF16, b->dq, at + i * b->dq_stride, tile->dquery + i * tile->width,
			a->head_dim, place->key > 0 || goes_on(a));
}

static void query_tile(
	const struct attention_backward *b, struct tile *tile, const struct place *place)
{
	const struct attention *a = &b->forward;
	int64_t ahead = place->position - place->key;

	load_queries(b, tile, place);
	query_by_key(tile, place, a->head_dim, tile->query, tile->key_columns, tile->score);
	query_by_key(tile, place, a->head_dim, tile->dout, tile->value_columns, tile->dscore);
	for (int64_t i = 0; i < place->rows; i++)
		row_gradients(tile, i, smaller(place->keys, ahead + i + 1), place->keys, a->scale);
	key_by_head(tile, place, tile->score, tile->packed_dout, tile->dvalue);
	key_by_head(tile, place, tile->dscore, tile->packed_query, tile->dkey);
	query_gradient(b, tile, place);
}

static void load_keys(const struct attention *a, struct tile *tile, const struct place *place)
{
	int64_t row = key_row(a, place->start, place->key), offset = place->kv * a->head_dim;
	const struct rows keys = {a->k, row * a->k_stride + offset, a->k_stride, place->keys};
	const struct rows values = {a->v, row * a->v_stride + offset, a->v_stride, place->keys};
	int64_t stride;
	const float *k = plain_rows(a, tile->plain, &keys, &stride);

	CPU(pack)(tile->key_columns, k, stride, true, a->head_dim, place->keys);
	CPU(pack)(tile->key_rows, k, stride, false, place->keys, a->head_dim);
	const float *v = plain_rows(a, tile->plain, &values, &stride);
	CPU(pack)(tile->value_columns, v, stride, true, a->head_dim, place->keys);
	memset(tile->dkey, 0, (size_t)(place->keys * tile->width) * sizeof(float));
	memset(tile->dvalue, 0, (size_t)(place->keys * tile->width) * sizeof(float));
}

static void store_gradients(
	const struct attention_backward *b, const struct tile *tile, const struct place *place)
{
	const struct attention *a = &b->forward;
	int64_t row = key_row(a, place->start, place->key), offset = place->kv * a->head_dim;

	for (int64_t i = 0; i < place->keys; i++) {
		int64_t dk = (row + i) * b->dk_stride + offset, from = i * tile->width;
		int64_t dv = (row + i) * b->dv_stride + offset;

		BY_DTYPE(write_row, a->dtype, b->dk, dk, tile->dkey + from, a->head_dim, b->adds);
		BY_DTYPE(write_row, a->dtype, b->dv, dv, tile->dvalue + from, a->head_dim, b->adds);
	}
}

/* One tile of keys of one kv head, against all query heads that share it. */
static void key_tile(const struct attention_backward *b, struct tile *tile, struct place *place)
{
	const struct attention *a = &b->forward;
	int64_t group = a->heads / a->kv_heads;

	load_keys(a, tile, place);
	for (place->head = place->kv * group; place->head < (place->kv + 1) * group;
		place->head++) {
		/* Tiles of queries start at multiples of QUERY_TILE, wherever the keys start. */
		place->query = larger(place->key - a->first, 0) / QUERY_TILE * QUERY_TILE;
		for (; place->query < a->length; place->query += QUERY_TILE) {
			place->position = a->first + place->query;
			place->rows = smaller(QUERY_TILE, a->length - place->query);
			query_tile(b, tile, place);
		}
	}
	store_gradients(b, tile, place);
}

/* All keys of one kv head of one sequence, in order: dq adds up over the tiles of keys. */
static void run_task(const struct attention_backward *b, struct tile *tile, int64_t task)
{
	const struct attention *a = &b->forward;
	struct place place = {
		.start = task / a->kv_heads * a->length,
		.kv = task % a->kv_heads,
	};

	for (int64_t end = keys_end(a, a->first + a->length); place.key < end;
		place.key += place.keys) {
		place.keys = keys_together(a, place.key, smaller(tile->keys, end - place.key));
		key_tile(b, tile, &place);
	}
}

void CPU(attention_backward)(struct kernel_context *context, const struct attention_backward *b)
{
	int64_t tasks = b->forward.sequences * b->forward.kv_heads;
	struct tile tile;
	int threads =
		usable_threads(context, tasks, init_tile(&tile, context->workspace, &b->forward));

	if (threads == 1) {
		for (int64_t task = 0; task < tasks; task++)
			run_task(b, &tile, task);
		return;
	}
#pragma omp parallel num_threads(threads)
	{
		struct tile own;

		init_tile(&own, thread_workspace(context, threads), &b->forward);
#pragma omp for schedule(dynamic)
		for (int64_t task = 0; task < tasks; task++)
			run_task(b, &own, task);
	}
}
