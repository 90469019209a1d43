/* The runtime being predicted, as data: which buffers exist and how long, which events are waited
 * for, what is saved for backward, and the cost on the host. Sources: docs/runtimes.md. */
#ifndef SCHEDULE_RUNTIME_H
#define SCHEDULE_RUNTIME_H

#include "schedule/plan/runtime_rules.h"

/* The layout of a unit's parameters in memory. */
enum layout_kind {
	LAYOUT_FLAT, /* FlatParameter: one vector, parameters aligned, cut in equal chunks */
	LAYOUT_PER_PARAMETER, /* FSDP2: each cut along dimension 0, padded to the group */
	LAYOUT_WHOLE,         /* DDP: nothing is cut; units are gradient buckets */
	LAYOUT_PARTITIONED,   /* ZeRO-3: leaves are units, each parameter padded to the group */
};

struct runtime {
	unsigned values[KNOB_COUNT]; /* bit v: honours value v of that knob; 0: all */

	/* --- units and their gathers --- */
	enum layout_kind layout, stage3_layout;
	int alignment_bytes;        /* of each parameter inside a flat unit, in the compute dtype */
	bool one_rank_is_unsharded; /* every strategy over one rank is NO_SHARD (FSDP1) */
	bool has_reshard_group;     /* reshard_after_forward: N */
	bool reshards_per_unit;     /* reshard_after_forward may differ from unit to unit */
	bool reshards_root;         /* reshard_after_forward: all */
	bool casts_shard;           /* a low-precision shard is made before each gather */
	bool copies_out;            /* FSDP2: gathered buffer -> parameters, a second copy */
	bool gathers_by_broadcast;  /* a gather is one broadcast a rank, one after the other */
	const struct zero_rules *zero; /* NULL: it has no ZeRO of its own */
	bool defers_frees; /* record_stream: a freed gather buffer is reusable only when its event
			    * has been seen; the host is sure when it has waited for it */

	/* --- gradients and the optimizer --- */
	bool flattens_gradients;   /* FSDP1: per-parameter gradients, then a flat copy */
	bool delays_post_backward; /* FSDP1, forward prefetch: a unit late (docs/runtimes.md) */
	bool limits_gradients;     /* at most two await their reduction; also limits copies */
	bool divides_separately;   /* averaging costs passes over the gradient (FSDP1) */
	bool fp32_gradient_shards; /* the optimizer reads fp32; else the master dtype */
	bool measures_norm;        /* the gradient norm is computed even without clipping */
	bool exact_norm;           /* the norm is summed exactly, in a superaccumulator */
	bool clips_in_update;      /* on a GPU the update applies clipping as a factor */
	bool optimizer_per_unit;   /* one OPTIMIZER operation a unit, else one for all */
	/* Gradients are summed, measured and clipped, and parameters cast, one by one, and each
	 * parameter has moments of its own. */
	bool by_parameter;

	/* --- offload to the host --- */
	bool own_copy_streams;    /* copies have streams of their own, else gather and reduce's */
	bool stages_again;        /* FSDP1: the shard is copied in even when the unit is gathered */
	bool keeps_host_gradient; /* FSDP1: its host copy lives between steps */
	bool accumulates_on_host; /* later micro-batches' gradients are added on the host */

	/* --- collectives and their streams --- */
	bool two_communicators; /* gathers and reductions have one each */
	bool one_engine;        /* on CPU devices one thread executes all collectives */
	/* NCCL of the environment that its guide asks for, as LIBRARY_VERSION; 0: a recent one. */
	int nccl_version;
	bool hierarchical; /* collectives over several nodes run inside each node first */
	/* CUDA_DEVICE_MAX_CONNECTIONS=1: exchanges of tensor ranks take places in the queue into
	 * which the host launches compute. */
	bool one_launch_queue;

	/* --- kernels --- */
	/* Norms and RoPE, and activations between an MLP's products, are one kernel each without
	 * torch.compile. */
	bool fused_kernels, fused_activations;
	struct copies attention_copies, activation_copies;

	/* --- tensors saved for backward --- */
	/* Recomputation ends with the last tensor that backward needs: the product of DOWN and the
	 * residual addition after it are not repeated (PyTorch 2.1's checkpoint). */
	bool recompute_stops_early;
	/* Only what backward reads is saved or computed again: neither the result of DOWN nor what
	 * comes after the last saved tensor of a block. */
	bool needed_tensors_only;
	/* The input of a projection is kept even if only its frozen weight would need it, because
	 * forward computes in that buffer. */
	bool keeps_unread;
	bool keeps_backward_work; /* gradients of a block's tensors live until it ends */
	/* FSDP1: units inside of a checkpointed block are gathered and freed one by one during
	 * recomputation, and once more for their backward; else they stay gathered. */
	bool recomputes_by_unit;
	bool recomputes_modules; /* selective checkpointing goes by module, not by operator */
	bool keeps_activated_gate;
	bool norm_unfused, projection_keeps_input, keeps_products_whole; /* models/activations.h */
	bool softmax_in_kernel; /* eager: probabilities are kept only in the compute dtype */
	bool keeps_fp8_copies;  /* fp8.h */
	int tensor_alignment;   /* of saved tensors */
	bool caching_allocator; /* PyTorch's: its segments may be expandable */

	/* --- tensor ranks --- */
	/* Sequence parallel: the input of a column-parallel layer stays gathered (DTensor), or with
	 * KNOB_KEEP_GATHERED; else it is gathered again in backward (Megatron-LM, nanotron). */
	bool keeps_gathered_input;
	/* Sequence parallel: tokens are gathered in buffers that stay, 1: in one for the head, 2:
	 * in one for inputs of all layers and one for gradients. */
	int gather_buffers;
	/* In the backward of a column-parallel layer exchanges of tensor ranks run beside its
	 * products: the gather of its input beside dX, the sum of dX beside dW (Megatron-LM,
	 * LinearWithGradAccumulationAndAsyncCommunication; flash-attn, FusedDenseFunc), unless
	 * KNOB_SERIAL_TENSOR. */
	bool overlaps_exchanges;
	/* Asynchronous exchanges (KNOB_ASYNC_TENSOR) are the layers' own, not torch.compile's, and
	 * also run beside products with a bias (Transformer Engine's userbuffers). Each of a
	 * block's six gathers and four sums has a buffer of all tokens. Sums in bf16 use this
	 * number of multiprocessors; copies use none. */
	bool layers_exchange;
	int sum_multiprocessors;
	bool adds_in_compute; /* the next reader adds what tensor ranks have summed */

	/* --- context and expert ranks --- */
	const struct ring_rules *ring; /* NULL: it has none */
	bool goes_by_ring;             /* the default method is the ring (--cp-comm-type p2p) */
	/* No window in a ring; attention sinks by all-to-all alone. */
	bool ring_sees_all;
	struct expert_rules experts;

	/* --- pipelines --- */
	/* Embedding and head count as a block each; or blocks are split by cost. A script may name
	 * each stage's blocks. A stage's output lives until its backward, although it was sent. */
	bool ends_are_blocks, cuts_by_cost, names_stages, keeps_stage_output;
	unsigned waits_for_messages; /* bit s: the host does, in pipeline schedule s */
	bool predicts_next; /* it trains modules of multi-token prediction, in the last stage */
	bool ties_stages;   /* first and last stage sum the gradients of a table that both have */
	/* Tensors of messages live on between steps: three halves of one for the rank, and as many
	 * for each of its stages. */
	bool keeps_messages;

	/* --- the head and the loss --- */
	int64_t vocab_multiple; /* the vocabulary is padded to it, times tensor ranks; 0: not */
	int64_t logits_row;     /* elements that a row of logits is a multiple of; 0: any */
	bool loss_in_place;     /* the fused loss writes the gradient over the logits */
	bool compiles_loss;     /* LOSS_UPCAST is the parallel loss, compiled */
	bool chunks_head;       /* LOSS_FUSED_LINEAR goes by plan_chunks_head */
	bool parallel_loss;     /* its own loss is that of tensor parallel models */
	bool keeps_losses;      /* one a token */
	bool skips_windows;     /* flash attention leaves out what windows hide */

	/* --- the batch and the end of a step --- */
	/* Bytes of a batch's token on its way to a GPU (ids, labels, masks). */
	int batch_token_bytes;
	bool chunk_has_window, batch_has_mask; /* a target a chunk; a byte for pairs of tokens */
	/* The script then waits for the compute stream (`.to(device)` without non_blocking). */
	bool waits_for_batch;
	bool synchronises_step; /* the training loop reads the loss once a step: the host waits */
	/* On CPU devices, the bytes that each rank sends to all others at the end of a step. */
	int step_exchange_bytes;

	/* --- costs on the host, s. Priors [U] until calibrated --- */
	bool host_is_compute; /* on CPU devices the issuing thread computes itself */
	double host_per_kernel, host_per_hook, host_per_micro_batch; /* by operation, unit hook */
	double host_per_exchange; /* of tokens between tensor ranks, keys between context ranks */

	/* --- memory outside of the schedule's buffers; a topology's overheads replace it --- */
	int64_t context_bytes;      /* per process on a GPU */
	int64_t process_bytes;      /* per process on a CPU device */
	int64_t nccl_bytes;         /* per process with communicators, whatever they hold */
	int64_t communicator_bytes; /* per communicator */
	int64_t workspace_bytes;    /* matrix library workspace, a declared buffer; 0: cuBLAS's */
	/* Beside the workspace of the thread that runs forward: that of autograd's thread, which
	 * has a cuBLAS handle of its own, and Transformer Engine's, of 4 MiB, 32 MiB from Hopper
	 * on. */
	bool three_workspaces;
};

const struct runtime *runtime_of(enum runtime_kind kind);

#endif
