/* Private to the targets: rules and words that several of them have. */
#ifndef FRAMEWORKS_TARGETS_SHARED_H
#define FRAMEWORKS_TARGETS_SHARED_H

#include "frameworks/common/common.h"

/* A row of a table, in a macro. */
#define ROW(...)                                                                                   \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}

/* --- rules -------------------------------------------------------------------------------- */

/* DeepSpeed's stages in FSDP's words. */
#define ZERO_AS_FSDP   "ZERO_3>FULL_SHARD ZERO_2>SHARD_GRAD_OP ZERO_1>SHARD_GRAD_OP"
#define GROUPS_AS_FLAT "HYBRID_SHARD>FULL_SHARD HYBRID_SHARD_ZERO2>SHARD_GRAD_OP " ZERO_AS_FSDP
/* What FSDP2 does in every framework (torchtitan, docs/fsdp.md). */
#define FSDP2_PREFETCH                                                                             \
	ROW(KNOB_PREFETCH, FIXED, "*>pre",                                                         \
		"FSDP2 always gathers the next unit before it reduces this one")
#define FSDP2_FORWARD                                                                              \
	ROW(KNOB_FORWARD_PREFETCH, FIXED, "*>false",                                               \
		"FSDP2 takes explicit forward prefetch from code alone")
#define FSDP2_LIMITER                                                                              \
	ROW(KNOB_LIMIT_ALL_GATHERS, FIXED, "*>false", "FSDP2 has no rate limiter and needs none")
#define FSDP1_RESHARD                                                                              \
	ROW(KNOB_RESHARD_AFTER_FORWARD, IN_FILE, "true false *>true", "FSDP1 knows no group sizes")
#define FSDP_OFFLOAD                                                                               \
	ROW(KNOB_CPU_OFFLOAD, IN_FILE, "none parameters *>parameters",                             \
		"FSDP moves parameters, gradients and optimizer state together")
#define MASTER_FP32                                                                                \
	ROW(KNOB_MASTER_DTYPE, FIXED, "*>fp32",                                                    \
		"mixed precision keeps fp32 parameters and optimizer state")
#define REDUCE_AS_PARAMETERS                                                                       \
	ROW(KNOB_REDUCE_DTYPE, FIXED, "*>@param_dtype",                                            \
		"bf16 and fp16 set the dtype of parameters and of the reduction alike")
#define TORCH_ADAMW                                                                                \
	ROW(KNOB_OPTIMIZER, IN_FILE, "adamw-fused adamw-foreach sgd *>adamw-foreach",              \
		"adamw_torch is PyTorch's foreach implementation")
#define ATTENTION_FLASH                                                                            \
	ROW(KNOB_ATTENTION, IN_FILE, "eager flash *>flash",                                        \
		"which of its kernels is not the file's choice")
#define ATTENTION_IN_SCRIPT                                                                        \
	ROW(KNOB_ATTENTION, ELSEWHERE, NULL,                                                       \
		"from_pretrained(attn_implementation=\"flash_attention_2\" or \"eager\")")
/* Knobs that no configuration has, except for the loss, which some have; the end of every list. */
/* Transformers' models compute the loss in fp32, unless Liger does. */
#define LOSS_OF_TRANSFORMERS                                                                       \
	{                                                                                          \
		KNOB_LOSS, IN_FILE, "fused-linear *>upcast",                                       \
			"Transformers has this loss, or Liger's"                                   \
	}
#define LIGER_IN_SCRIPT                                                                            \
	{                                                                                          \
		KNOB_LIGER, ELSEWHERE, NULL,                                                       \
			"the script: apply_liger_kernel_to_llama() or its like"                    \
	}
#define OUTSIDE_OF_FILES                                                                           \
	{KNOB_LOSS, ELSEWHERE, NULL, "the loss that the model or the script computes"},            \
		OUTSIDE_BUT_LOSS
#define OUTSIDE_BUT_LOSS                                                                           \
	{KNOB_DOCUMENT_LEN, ELSEWHERE, NULL, "of the data, which the loader packs"},               \
		{KNOB_LOADER_RATE, ELSEWHERE, NULL,                                                \
			"what the data loader delivers is measured, not set"},                     \
		{KNOB_ALLOCATOR, ELSEWHERE, NULL,                                                  \
			"the environment: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},      \
		{KNOB_LIBRARIES, ELSEWHERE, NULL, "the versions that are installed"}, ROW(NO_KNOB)

/* --- how it is started ----------------------------------------------------------------------- */

/* A launcher that gets the address of the first node; %[ %] is only written for several nodes. */
#define TORCHRUN                                                                                   \
	"torchrun --nnodes %n --nproc-per-node %g "                                                \
	"%[--rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:29500 %]"
#define ACCELERATE_NODES                                                                           \
	"%[--machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR --main_process_port 29500 %]"

/* --- words -------------------------------------------------------------------------------- */

#define FULL_OR_NONE       "true>full false>none"
#define PARAMETERS_OR_NONE "true>parameters false>none"
#define TORCH_OPTIMIZERS   "adamw_torch_fused>adamw-fused adamw_torch>adamw-foreach sgd"
#define TORCH_DTYPES       "bfloat16>bf16 float16>fp16 float32>fp32"

#endif
