/* Private to schedule/: who builds what. build.c drives; gather.c, forward.c, backward.c, reduce.c,
 * optimizer.c and ddp.c emit operations through emit.c. */
#ifndef SCHEDULE_PASSES_H
#define SCHEDULE_PASSES_H

#include "schedule/passes/state.h"

/* --- emit.c -------------------------------------------------------------------------------------
 */
void op_begin(struct builder *b, enum op_kind kind, enum stream stream, int unit);
void op_wait(struct builder *b, struct ref ref); /* nothing for no ref or the same stream */
void op_wait_stream(struct builder *b, enum stream stream); /* for all issued there so far */
void op_use(struct builder *b, int buffer);                 /* nothing for -1 */
void op_take(struct builder *b, int buffer);
void op_give(struct builder *b, int buffer);
struct ref op_end(struct builder *b);
struct ref no_ref(void);
/* The pool is the stream that the taking operation runs on. */
int buffer_new(struct builder *b, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype);
int buffer_resident(
	struct builder *b, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype);
void list_add(struct list *list, int item);

/* --- walk.c -------------------------------------------------------------------------------------
 */
/* Fills events, hook orders. */
void build_walk(struct builder *b);

/* --- gather.c -----------------------------------------------------------------------------------
 */
void gather_pre_forward(struct builder *b, int unit);
void gather_post_forward(struct builder *b, int unit);
void gather_pre_backward(struct builder *b, int unit);
/* After the unit's backward: frees the parameters, then prefetches (BACKWARD_POST). */
void gather_post_backward(struct builder *b, int unit);
void gather_updated(struct builder *b, int unit);
void gather_for_recompute(struct builder *b, int unit);
/* Of runtimes that recompute by unit: behind a unit's part of the block. */
void gather_post_recompute(struct builder *b, int unit);
/* The first operation of a step on a gathering stream waits for the optimizer of the step before.
 */
void op_wait_gathering(struct builder *b);
/* Adds the buffer that holds a unit's parameters for compute to the operation, and the wait. */
void op_use_parameters(struct builder *b, int unit);

/* --- forward.c, backward.c ----------------------------------------------------------------------
 */
void op_set_range(struct builder *b, const struct event *event);
/* What the range's compute reads its parameters from. */
void op_use_weights(struct builder *b, int event);
enum checkpointing checkpointing_of(const struct builder *b, const struct event *event);
/* A buffer for the saved tensors of a range; -1 when it saves nothing. */
int saved_new(struct builder *b, enum buffer_role role, int event);
/* The first range of the event's slot. */
int slot_begin(const struct builder *b, int event);
/* Adds the saved tensors of a range, its own first, then those of earlier ranges of its slot. */
void op_use_slot(struct builder *b, int event);
void forward_range(struct builder *b, int event);
void loss(struct builder *b);
void backward_event(struct builder *b, int event);

/* --- selective.c --------------------------------------------------------------------------------
 */
/* Of what the range's leaves save, the bytes that are computed again. */
int64_t selective_dropped_bytes(const struct builder *b, int event);
/* A buffer for what is kept; -1 when nothing is. The caller takes it. */
int selective_keep(struct builder *b, int event);
/* The leaves that are computed again, into `buffer`. */
void selective_recompute(struct builder *b, int event, int buffer);

/* --- reduce.c -----------------------------------------------------------------------------------
 */
/* Buffers and traffic from the backward of a range to the unit's gradient. */
void gradient_take(struct builder *b, int unit, const struct event *range);
/* FSDP1's autograd split: the flat gradient of a unit. */
void gradient_flatten(struct builder *b, int unit);
void gradient_reduce(struct builder *b, int unit);
int64_t range_parameters(const struct builder *b, const struct event *range);
/* Elements of the gradient that the range's backward leaves behind. What it only adds to the
 * gradient of a tied weight is a buffer of that operation alone. */
int64_t gradient_elements(struct builder *b, const struct event *range, enum dtype dtype);

/* What exact sums of gradients add to the end of backward's work: fp32 gradients of one leaf's
 * parameters, for one sequence. */
int64_t gradient_scratch_bytes(const struct model *model);

/* --- offload.c ----------------------------------------------------------------------------------
 */
bool offloads(const struct builder *b, int unit);
bool offloads_parameters(const struct builder *b, int unit);
/* The unit's resident buffers; `state_bytes` of optimizer state per element. */
void offload_resident(struct builder *b, int unit, int64_t state_bytes);
/* Copies the shard in, to be cast or gathered; `drop`: nobody will, its copy is given at once. */
struct ref offload_stage(struct builder *b, int unit, int cause, bool drop);
/* The reduced gradient leaves the device, on the stream that reduced it or its own. */
void offload_gradient(struct builder *b, int unit, enum stream stream);
/* The master copy on the device: a new buffer, taken, that the caller must give. */
int offload_stage_master(struct builder *b, int unit);
/* After the host's update, the shard that the device keeps; nothing when it keeps none. */
void offload_return(struct builder *b, int unit);

/* --- optimizer.c --------------------------------------------------------------------------------
 */
void optimizer_step(struct builder *b);
/* FSDP2, after every backward: compute waits for the last reduction, whose input is released. */
void end_backward(struct builder *b);
/* Bytes of device memory that one parameter's update moves. */
double optimizer_traffic(enum optimizer optimizer);

void use_bucket_weights(struct builder *b, const struct event *event, int copy);

/* --- ddp.c --------------------------------------------------------------------------------------
 */
bool is_ddp(const struct builder *b);
void ddp_prepare(struct builder *b);
void ddp_pre_range(struct builder *b, int event); /* before its forward: the cached cast */
void ddp_use_weights(struct builder *b, int event);
void ddp_gradients(struct builder *b, int event);
void ddp_post_range(struct builder *b, int event); /* after its backward: full buckets leave */
void ddp_finish_backward(struct builder *b);
void ddp_use_gradients(struct builder *b);
void ddp_give_gradients(struct builder *b);
/* Of the ranges that hold gradients of the bucket's parameters. */
void ddp_use_bucket_gradients(struct builder *b, int bucket);

/* --- zero3.c ------------------------------------------------------------------------------------
 */
bool is_zero3(const struct builder *b);
void zero3_build_resident(struct builder *b);
void zero3_begin(struct builder *b); /* a micro-batch */
void zero3_fetch(struct builder *b, int unit);
void zero3_release(struct builder *b, int unit);
void zero3_reduce(struct builder *b, int unit);
void zero3_end_backward(struct builder *b);
void zero3_finish_step(struct builder *b);

/* --- zero.c -------------------------------------------------------------------------------------
 */
bool is_zero(const struct builder *b); /* is_ddp too: there are buckets, no units */
void zero_build_resident(struct builder *b);
void zero_use_weights(struct builder *b);
void zero_gradients(struct builder *b, int event);
void zero_post_range(struct builder *b, int event);
void zero_finish_backward(struct builder *b);
/* The optimizer reads fp32 gradients: bytes of the copy that is made for it. */
int64_t zero_optimizer_work(struct builder *b, int64_t elements);
void zero_use_gradients(struct builder *b, int unit);
void zero_gather(struct builder *b);

#endif
