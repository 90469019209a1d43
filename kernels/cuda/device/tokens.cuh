/* Tokens are looked up in a table. */
#include "kernels/cuda/device/elements.cuh"

/* What a thread looks up: some tokens, and where in a sequence they are. */
struct looked_up {
	uint32_t token[CUDA_EMBED_TOKENS], at[CUDA_EMBED_TOKENS];
	int32_t id[CUDA_EMBED_TOKENS];
};

/* All ids are in flight at once. A token that there is not is the last one once more. */
DEVICE void find_ids(const embedding_launch &a, looked_up &t, uint32_t first, uint32_t abreast)
{
	uint32_t length = (uint32_t)a.length;

#pragma unroll
	for (uint32_t k = 0; k < CUDA_EMBED_TOKENS; k++) {
		uint32_t token = first + k * abreast, sequence;

		token = token < a.tokens ? token : a.tokens - 1;
		sequence = token / length;
		t.token[k] = token;
		t.at[k] = token - sequence * length;
		t.id[k] = a.ids[sequence * a.ids_stride + t.at[k]];
	}
}

DEVICE void note_unknown(const embedding_launch &a, const looked_up &t)
{
#pragma unroll
	for (uint32_t k = 0; k < CUDA_EMBED_TOKENS; k++) {
		if ((uint32_t)t.id[k] >= (uint32_t)a.vocabulary)
			atomic_max(a.fault, t.id[k] < 0 ? INT32_MAX : t.id[k]);
	}
}

/* Some tokens' columns, all of them in flight at once. An unknown token is noted and reads as
 * zeros. A block has several tokens side by side where a slice is shorter than the block. */
template <typename T, bool VECTOR> DEVICE void embed_tokens(const embedding_launch &a)
{
	const int N = lanes<T>::count, TOKENS = CUDA_EMBED_TOKENS;
	uint32_t abreast = blockDim.x / a.slice, row = threadIdx.x / a.slice;
	uint32_t first = blockIdx.x * abreast * TOKENS + row;
	uint32_t pack = blockIdx.y * a.slice + (threadIdx.x - row * a.slice);
	int64_t column = (int64_t)pack * N;
	int rest = (int)(a.width - column);
	raw<T> x[TOKENS], y[TOKENS];
	looked_up t;

	if (rest <= 0 || row >= abreast || first >= a.tokens)
		return;
	find_ids(a, t, first, abreast);
	if (pack == 0)
		note_unknown(a, t);
#pragma unroll
	for (int k = 0; k < TOKENS; k++) {
		bool known = (uint32_t)t.id[k] < (uint32_t)a.vocabulary;
		const T *table = (const T *)a.table + column, *position = table;

		if (a.positions)
			position = (const T *)a.positions + t.at[k] * a.width + column;
		x[k] = fetch<VECTOR>(table + t.id[k] * a.width, known ? rest : 0);
		y[k] = fetch<VECTOR>(position, known && a.positions ? rest : 0);
	}
#pragma unroll
	for (int k = 0; k < TOKENS; k++) {
		float v[N], w[N];

		spread(v, x[k]), spread(w, y[k]);
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = a.positions ? v[j] + w[j] : v[j];
		put_away((T *)a.out + t.token[k] * a.width + column, v, rest, VECTOR);
	}
}

/* Grid: (groups of tokens, slices): all tokens' first slices come before the second ones. */
template <typename T> DEVICE void embedding_body(const embedding_launch &a)
{
	if (a.vector)
		embed_tokens<T, true>(a);
	else
		embed_tokens<T, false>(a);
}
KERNEL_BOTH(embedding, embedding_body)
