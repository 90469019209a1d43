/* Says which tokens a context rank has: two chunks of every sequence, one from either end. */
#include "executor/compute/context.h"

#include <string.h>

int64_t context_ranks(const struct compute *c)
{
	return c->schedule->plan.mesh.context;
}

int64_t context_place(const struct compute *c)
{
	const struct mesh *mesh = &c->schedule->plan.mesh;

	return c->rank / mesh->tensor % mesh->context;
}

int64_t context_first_position(const struct compute *c, int64_t place, int64_t chunk)
{
	return (chunk % 2 == 0 ? place : c->chunks - 1 - place) * c->seq_len;
}

int64_t compute_position(const struct compute *c, int64_t token)
{
	int64_t at = token % c->seq_len;

	return c->chunks > 0 ? context_first_position(c, context_place(c), token / c->seq_len) + at
			     : at;
}

int64_t context_rank_of(const struct compute *c, int64_t chunk)
{
	return min_i64(chunk, c->chunks - 1 - chunk);
}

int64_t context_row_of(const struct compute *c, int64_t sequence, int64_t chunk)
{
	return (2 * sequence + (2 * chunk >= c->chunks)) * c->seq_len;
}

int64_t context_key_width(const struct leaf *leaf)
{
	const struct architecture *a = &leaf->compute->model->architecture;

	return a->kv_heads * a->head_dim;
}

void context_copy(
	const struct leaf *leaf, void *out, int64_t to, const void *in, int64_t from, int64_t width)
{
	const struct compute *c = leaf->compute;
	bool moves = !c->rehearsal && c->data != NULL && out != NULL && in != NULL;
	size_t bytes = (size_t)(width * dtype_bytes(c->dtype));

	for (int64_t i = 0; i < c->tokens && moves; i++)
		memcpy(compute_at(c, out, i * to), compute_at(c, in, i * from), bytes);
}
