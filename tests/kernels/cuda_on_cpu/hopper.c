/* Hopper's mbarriers and wgmma, after the PTX manual. */
#include <string.h>

#include "tests/kernels/cuda_on_cpu/machine.h"

enum { MOST_BARRIERS = 128, MOST_PRODUCTS = 96 };

/* In shared memory at 8 times its number. */
static struct barrier {
	int arrivals, missing; /* of a phase; 0: not begun */
	uint32_t phase;
} barriers[MOST_BARRIERS];

static struct hopper_thread {
	struct cuda_wgmma_operands products[MOST_PRODUCTS];
	int groups[MOST_PRODUCTS], n_products, group;
	bool blind, begun; /* must not multiply: memory that a barrier has given; at all */
} threads[CUDA_MOST_THREADS];

static struct hopper_thread *self(void)
{
	return &threads[cuda_thread->index.x];
}

void cuda_hopper_begin_block(void)
{
	memset(barriers, 0, sizeof(barriers));
	for (int i = 0; i < CUDA_MOST_THREADS; i++)
		threads[i].n_products = threads[i].group = threads[i].blind = threads[i].begun = 0;
}

void cuda_hopper_end_thread(void)
{
	if (self()->n_products > 0)
		cuda_die("ended with wgmma not waited for");
}

/* --- barriers --- */

static struct barrier *barrier_at(uint32_t offset)
{
	if (offset % 8 || offset / 8 >= MOST_BARRIERS)
		cuda_die("a barrier where none can be");
	return &barriers[offset / 8];
}

void cuda_mbarrier_init(uint32_t offset, int arrivals)
{
	*barrier_at(offset) = (struct barrier){arrivals, arrivals, 0};
}

void cuda_mbarrier_arrive(uint32_t offset)
{
	struct barrier *b = barrier_at(offset);

	if (b->arrivals == 0)
		cuda_die("a barrier that nobody has begun");
	if (--b->missing > 0)
		return;
	b->missing = b->arrivals;
	b->phase ^= 1;
}

static bool phase_1(const void *about)
{
	return ((const struct barrier *)about)->phase == 1;
}

static bool phase_0(const void *about)
{
	return ((const struct barrier *)about)->phase == 0;
}

/* Until the phase of that parity has ended. */
void cuda_mbarrier_wait(uint32_t offset, uint32_t parity)
{
	struct barrier *b = barrier_at(offset);

	if (b->arrivals == 0)
		cuda_die("a barrier that nobody has begun");
	cuda_wait_until(parity ? phase_0 : phase_1, b);
	self()->blind = true;
}

/* --- wgmma --- */

void cuda_fence_proxy_async(void)
{
	self()->blind = false;
}

void cuda_wgmma_fence(void)
{
	self()->begun = true;
}

void cuda_wgmma(const struct cuda_wgmma_operands *product)
{
	struct hopper_thread *me = self();

	if (me->blind)
		cuda_die("wgmma reads memory behind an mbarrier without fence.proxy.async");
	if (!me->begun)
		cuda_die("wgmma without wgmma.fence");
	if (me->n_products == MOST_PRODUCTS)
		cuda_die("too many wgmma not waited for");
	me->groups[me->n_products] = me->group;
	me->products[me->n_products++] = *product;
}

void cuda_wgmma_commit_group(void)
{
	self()->group++;
}

static float bf16_at(uint32_t address)
{
	uint32_t bits;
	uint16_t half;
	float x;

	address ^= (address >> 7 & 7) << 4; /* the swizzle over 128 bytes */
	memcpy(&half, cuda_shared + address, sizeof(half));
	bits = (uint32_t)half << 16;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Element (row, k) of a matrix whose rows have 64 elements: eight rows are 1024 bytes, or what the
 * description says. */
static float element(uint64_t matrix, int row, int k)
{
	uint32_t start = (uint32_t)(matrix & 0x3fff) << 4;
	uint32_t eight_rows = (uint32_t)(matrix >> 32 & 0x3fff) << 4;

	return bf16_at(
		start + (uint32_t)(row / 8) * eight_rows + (uint32_t)(row % 8 * 128 + k * 2));
}

/* Element (k, column) where columns are consecutive, in blocks of 64. */
static float element_by_rows(uint64_t matrix, int k, int column)
{
	uint32_t start = (uint32_t)(matrix & 0x3fff) << 4;
	uint32_t block = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
	uint32_t eight_rows = (uint32_t)(matrix >> 32 & 0x3fff) << 4;

	return bf16_at(start + (uint32_t)(column / 64) * block + (uint32_t)(k / 8) * eight_rows +
		       (uint32_t)(k % 8 * 128 + column % 64 * 2));
}

static float from_lane(const struct exchange *all, int row, int k)
{
	uint32_t pair, bits;
	float x;

	memcpy(&pair, all->of[row % 8 * 4 + k % 8 / 2] + 4 * (k / 8 * 2 + row / 8), sizeof(pair));
	bits = k % 2 ? pair & 0xffff0000u : pair << 16;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* A warp has 16 of the 64 rows; lane 4 g + t rows g and g + 8, columns 2 t and 2 t + 1 of every 8.
 */
static void multiply(const struct cuda_wgmma_operands *p)
{
	const struct exchange *all =
		cuda_exchange("wgmma", p->a_registers, p->a_registers ? 16 : 0);
	int lane = (int)cuda_thread->index.x % 32, warp = (int)cuda_thread->index.x / 32 % 4;
	float left[2][16];

	if (p->a >> 62 != (p->a_registers ? 0 : 1) || p->b >> 62 != 1)
		cuda_die("a matrix that is not swizzled over 128 bytes");
	for (int i = 0; i < 32; i++) {
		int row = lane / 4 + i / 16 * 8;

		left[i / 16][i % 16] = p->a_registers ? from_lane(all, row, i % 16)
						      : element(p->a, warp * 16 + row, i % 16);
	}
	for (int i = 0; i < p->columns / 2; i++) {
		int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
		float sum = p->add ? p->d[i] : 0.0f;

		for (int k = 0; k < 16; k++)
			sum += left[i % 4 / 2][k] * (p->b_by_rows ? element_by_rows(p->b, k, column)
								  : element(p->b, column, k));
		p->d[i] = sum;
	}
}

void cuda_wgmma_wait_group(int open_groups)
{
	struct hopper_thread *me = self();
	int kept = 0;

	for (int i = 0; i < me->n_products; i++) {
		if (me->groups[i] < me->group - open_groups) {
			multiply(&me->products[i]);
			continue;
		}
		me->groups[kept] = me->groups[i];
		me->products[kept++] = me->products[i];
	}
	me->n_products = kept;
	me->begun = false; /* results may be touched now */
}
