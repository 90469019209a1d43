/* Flash attention as Hopper wants it (sm_90a), bf16 with fp32 sums. Weights stay in registers
 * between the two products. A group does not overlap its own products with its exponentials: the
 * two groups of a block drift apart until one multiplies while the other does not, and to arrange
 * for that was slower on an H100. */
#include "kernels/cuda/device/hopper_tiles.cuh"

#if HOPPER

/* Shared memory: queries, and rings of S keys and of values. */
template <int D, int GROUPS, int BN, int S> struct forward_memory {
	static const int ROWS = 64 * GROUPS;
	static const uint32_t q_ready = 0, k_ready = 16, v_ready = k_ready + 16 * S,
			      TILE = BN * D * 2, q = BARRIER_BYTES, k = q + ROWS * D * 2,
			      v = k + S * TILE;
};

template <int D, int GROUPS, int BN, int S>
DEVICE void forward_copies(const attention_launch &a, int tiles, int items)
{
	using at = forward_memory<D, GROUPS, BN, S>;
	ring<1> q = {0, 0};
	ring<S> k = {0, 0}, v = {0, 0};

	for (int i = 0; item_number(i) < items; i++) {
		hopper_item w = item_of(item_number(i), tiles, (int)a.heads, true, a);
		int first = w.tile * at::ROWS, kv_head = w.head / (int)(a.heads / a.kv_heads);
		int all = tiles_of<BN>(first + at::ROWS, a);
		const bf16 *keys = hopper_head(a.k, a.k_stride, kv_head, w.sequence, a);
		const bf16 *values = hopper_head(a.v, a.v_stride, kv_head, w.sequence, a);

		wait_empty(q, at::q_ready);
		hopper_copy<D, at::ROWS>(at::q, hopper_head(a.q, a.q_stride, w.head, w.sequence, a),
			a.q_stride, first, a);
		filled(q, at::q_ready);
		for (int tile = 0; tile < all; tile++) {
			wait_empty(k, at::k_ready);
			hopper_copy<D, BN>(at::k + (uint32_t)k.stage * at::TILE, keys, a.k_stride,
				tile * BN, a);
			filled(k, at::k_ready);
			wait_empty(v, at::v_ready);
			hopper_copy<D, BN>(at::v + (uint32_t)v.stage * at::TILE, values, a.v_stride,
				tile * BN, a);
			filled(v, at::v_ready);
		}
	}
	copy_async_commit();
	copy_async_wait<0>();
}

/* What a group knows of its 64 queries. Running maxima and sums are of the two rows of a thread;
 * `old` is what older sums are to be multiplied with. */
template <int D, int N> struct forward_state {
	float sum[D / 8][4], s[N][4], most[2], total[2], old[2];
	uint32_t p[N / 2][4];
};

/* Scores to weights relative to the running maximum, which they may raise. */
template <int D, int N> DEVICE void weights_of(forward_state<D, N> &x, float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float top = x.most[half], total = 0.0f, shift;

#pragma unroll
		for (int n = 0; n < N; n++)
			top = fmaxf(top, fmaxf(x.s[n][2 * half], x.s[n][2 * half + 1]));
		top = fmaxf(top, shuffle_xor(top, 1));
		top = fmaxf(top, shuffle_xor(top, 2));
		shift = -top * scale;
		x.old[half] = fast_exp2(fmaf(x.most[half], scale, shift));
#pragma unroll
		for (int n = 0; n < N; n++) {
			float *s = &x.s[n][2 * half];

			s[0] = fast_exp2(fmaf(s[0], scale, shift));
			s[1] = fast_exp2(fmaf(s[1], scale, shift));
			total += s[0] + s[1];
		}
		x.total[half] = fmaf(x.total[half], x.old[half], total);
		x.most[half] = top;
	}
}

template <int D, int N> DEVICE void rescale(forward_state<D, N> &x)
{
#pragma unroll
	for (int i = 0; i < D / 2; i++)
		x.sum[i / 4][i % 4] *= x.old[i % 4 / 2];
}

/* The rings of a group, its number, and the first query of its warp. */
template <int S> struct forward_group {
	ring<1> q;
	ring<S> k, v;
	int number, row;
};

template <int D, int GROUPS, int BN, int S>
DEVICE void forward_tile(
	forward_state<D, BN / 8> &x, forward_group<S> &g, int tile, const attention_launch &a)
{
	using at = forward_memory<D, GROUPS, BN, S>;

	wait_full(g.k, at::k_ready);
	products_begin();
	begin_scores<D, at::ROWS>(
		x.s, at::q, g.number * 64, at::k + (uint32_t)g.k.stage * at::TILE);
	products_commit();
	products_wait<0>();
	products_done(x.s);
	leave(g.k, at::k_ready);
	if ((tile + 1) * BN > g.row)
		hide(x.s, g.row - tile * BN);
	weights_of(x, a.scale * LOG2_E);
	rescale(x);
	pack<BN / 8>(x.p, x.s);
	wait_full(g.v, at::v_ready);
	products_begin();
	begin_sums<D, BN / 8>(x.sum, x.p, at::v + (uint32_t)g.v.stage * at::TILE);
	products_commit();
	products_wait<0>();
	products_done(x.sum);
	leave(g.v, at::v_ready);
}

template <int D, int N>
DEVICE void forward_results(
	const forward_state<D, N> &x, int first, const hopper_item &w, const attention_launch &a)
{
	int lane = (int)threadIdx.x % 32;
	float inverse[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		int row = first + half * 8 + lane / 4;
		float total = x.total[half];

		total += shuffle_xor(total, 1);
		total += shuffle_xor(total, 2);
		inverse[half] = 1.0f / total;
		if (lane % 4 == 0 && row < a.length)
			a.lse[((int64_t)w.sequence * a.length + row) * a.lse_stride + w.head] =
				fmaf(x.most[half], a.scale, logf(total));
	}
	hopper_store<D>(hopper_head(a.out, a.out_stride, w.head, w.sequence, a), a.out_stride,
		first, x.sum, inverse[0], inverse[1], a);
}

template <int D, int GROUPS, int BN, int S>
DEVICE void forward_products(const attention_launch &a, int tiles, int items)
{
	using at = forward_memory<D, GROUPS, BN, S>;
	int warp = (int)threadIdx.x % GROUP / 32;
	forward_group<S> g = {{0, 0}, {0, 0}, {0, 0}, (int)threadIdx.x / GROUP, 0};

	for (int i = 0; item_number(i) < items; i++) {
		hopper_item w = item_of(item_number(i), tiles, (int)a.heads, true, a);
		int first = w.tile * at::ROWS, own = first + g.number * 64;
		int all = tiles_of<BN>(first + at::ROWS, a), mine = tiles_of<BN>(own + 64, a);
		forward_state<D, BN / 8> x;

		g.row = own + warp * 16;
		clear(x.sum);
		x.most[0] = x.most[1] = HIDDEN;
		x.total[0] = x.total[1] = 0.0f;
		wait_full(g.q, at::q_ready);
		for (int tile = 0; tile < mine; tile++)
			forward_tile<D, GROUPS, BN>(x, g, tile, a);
		leave(g.q, at::q_ready);
		for (int tile = mine; tile < all; tile++) {
			skip(g.k, at::k_ready);
			skip(g.v, at::v_ready);
		}
		forward_results(x, g.row, w, a);
	}
}

template <int D, int GROUPS, int BN, int S> DEVICE void hopper_forward(const attention_launch &a)
{
	using at = forward_memory<D, GROUPS, BN, S>;
	int tiles = (int)((a.length + at::ROWS - 1) / at::ROWS);
	int items = tiles * (int)(a.heads * a.sequences);

	if (threadIdx.x == 0) {
		ring_begin<1>(at::q_ready, GROUPS * 4);
		ring_begin<S>(at::k_ready, GROUPS * 4);
		ring_begin<S>(at::v_ready, GROUPS * 4);
	}
	__syncthreads();
	if (is_copier<GROUPS>())
		forward_copies<D, GROUPS, BN, S>(a, tiles, items);
	else
		forward_products<D, GROUPS, BN, S>(a, tiles, items);
}

HOPPER_KERNEL(attention_hopper_64)
{
	hopper_forward<64, 2, 128, 2>(a);
}

HOPPER_KERNEL(attention_hopper_128)
{
	hopper_forward<128, 2, 128, 2>(a);
}

#endif
