/* The harness of the kernel tests and benchmarks: one description of a kernel's call serves to
 * compare two tables, to check bits, to count allocations and to measure time.
 *
 * To add a kernel: write a make and a call function in cases_*.c and a row with its shapes in the
 * table at the end of that file. */
#ifndef TESTS_KERNELS_PROBLEM_H
#define TESTS_KERNELS_PROBLEM_H

#include "kernels/kernels.h"

enum { MOST_BUFFERS = 12, MOST_DIMS = 6, WHERE = 128 };

struct buffer {
	void *data; /* NULL when unused */
	enum dtype dtype;
	int64_t count;
	double tolerance; /* of an output, see compare; 0 for an input */
	bool output;
};

/* Where operands live when they do not live on the host: an array of uniform numbers. */
struct problem_memory {
	void *(*make)(void *owner, enum dtype dtype, int64_t count, double low, double high);
	void *owner;
};

struct problem {
	const struct kernels *kernels;
	const struct problem_memory *memory; /* NULL: the host */
	struct kernel_context *context;
	const struct kernel_case *kernel_case;
	int64_t dim[MOST_DIMS];
	struct buffer buffer[MOST_BUFFERS];
	int32_t *ids; /* tokens or targets, n_ids of them */
	int64_t n_ids;
	uint64_t random;
	/* One call's work, for the benchmark; bytes are what a kernel must read and write at
	 * least. */
	double flops, bytes;
	int64_t offset; /* elements by which every buffer is misaligned */
	int64_t first;  /* of a piece of a flat problem: where it begins in the whole */
};

struct kernel_case {
	const char *name;
	/* Allocates and fills the buffers from the problem's dims; the same on every table. */
	void (*make)(struct problem *);
	void (*call)(struct problem *);
	const int64_t (*shapes)[MOST_DIMS]; /* ends with a row that starts with -1 */
	int64_t bench[MOST_DIMS];           /* a training-sized shape; first 0: not measured */
	enum dtype dtype, gradient_dtype;   /* of operands; of the gradients of parameters */
};

/* The third update of n elements, of no arrays yet. */
struct adamw third_adamw(int64_t n);

void context_init(struct kernel_context *context, const struct kernels *kernels);
void context_finish(struct kernel_context *context, const struct kernels *kernels);

void problem_init(struct problem *problem, const struct kernel_case *kernel_case,
	const int64_t dim[MOST_DIMS], const struct kernels *kernels, struct kernel_context *context,
	int64_t offset);
/* Does the same with operands in that memory, which is its owner's to free; ids stay on the
 * host. */
void problem_init_in(struct problem *problem, const struct problem_memory *memory,
	const struct kernel_case *kernel_case, const int64_t dim[MOST_DIMS],
	const struct kernels *kernels, struct kernel_context *context, int64_t offset);
void problem_finish(struct problem *problem);

/* Bytes of that many elements of the case's type. */
double traffic(const struct problem *problem, double elements);
/* Buffer `slot` of `count` uniform elements in [low, high), of the case's type. */
void *make_input(struct problem *problem, int slot, int64_t count, double low, double high);
/* The same, and it will be compared: what it holds first matters for += and for in-place kernels.
 */
void *make_output(struct problem *problem, int slot, int64_t count, double low, double high,
	double tolerance);
/* Makes an input of a type that the case does not choose. A bf16 output is allowed one step of it,
 * at least. */
void *make_input_as(struct problem *problem, enum dtype dtype, int slot, int64_t count, double low,
	double high);
void *make_output_as(struct problem *problem, enum dtype dtype, int slot, int64_t count, double low,
	double high, double tolerance);
/* The type of the gradients of parameters. */
enum dtype gradient_dtype(const struct problem *problem);
/* `count` ids in [0, limit), one in eight -1 when `ignore`. */
int32_t *make_ids(struct problem *problem, int64_t count, int64_t limit, bool ignore);
double random_between(struct problem *problem, double low, double high);

/* The worst of |a - b| / (tolerance * (|b| + rms(b))) over all outputs; above 1 is a failure. NaN
 * against a number is infinite. `where` (WHERE bytes) names the worst element. */
double problem_distance(const struct problem *a, const struct problem *b, char *where);
/* True when all outputs have the same bits. */
bool problem_same_bits(const struct problem *a, const struct problem *b);

#endif
