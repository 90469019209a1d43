/* Private to the targets: rules that several of them have word for word, and what they read back
 * in a file of its own. */
#ifndef FRAMEWORKS_TARGETS_SHARED_H
#define FRAMEWORKS_TARGETS_SHARED_H

#include "frameworks/common/common.h"

extern const struct import_format import_deepspeed, import_accelerate_deepspeed, import_torchtitan,
	import_torchtitan_flags, import_torchtitan_toml, import_pytorch_fsdp2, import_pytorch_fsdp1;

/* DeepSpeed's stages in FSDP's words. */
#define ZERO_AS_FSDP "ZERO_3>FULL_SHARD ZERO_2>SHARD_GRAD_OP ZERO_1>SHARD_GRAD_OP"
/* What FSDP2 does whoever calls it (torchtitan, docs/fsdp.md). */
#define FSDP2_ALWAYS                                                                               \
	{"prefetch", SAYS_ALWAYS, "*>pre",                                                         \
		"FSDP2 always gathers the next unit before it reduces this one"},                  \
		{"forward_prefetch", SAYS_ALWAYS, "*>false",                                       \
			"FSDP2 takes explicit forward prefetch from code alone"},                  \
	{                                                                                          \
		"limit_all_gathers", SAYS_ALWAYS, "*>false",                                       \
			"FSDP2 has no rate limiter and needs none"                                 \
	}
#define MASTER_ALWAYS_FP32                                                                         \
	{                                                                                          \
		"master_dtype", SAYS_ALWAYS, "*>fp32",                                             \
			"mixed precision keeps fp32 parameters and optimizer state"                \
	}
#define ATTENTION_KEY                                                                              \
	{                                                                                          \
		"attention", SAYS_KEY, "eager flash *>flash",                                      \
			"which of its kernels is not the file's choice"                            \
	}
#define LOSS_BESIDE                                                                                \
	{                                                                                          \
		"loss", SAYS_BESIDE, NULL, "the loss that the model or the script computes"        \
	}
#define ENVIRONMENT_BESIDE                                                                         \
	{"loader_rate", SAYS_BESIDE, NULL, "what the data loader delivers is measured, not set"},  \
		{"allocator", SAYS_BESIDE, NULL,                                                   \
			"the environment: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},      \
	{                                                                                          \
		"libraries", SAYS_BESIDE, NULL, "the versions that are installed"                  \
	}
#define ATTENTION_BESIDE                                                                           \
	{                                                                                          \
		"attention", SAYS_BESIDE, NULL,                                                    \
			"from_pretrained(attn_implementation=\"flash_attention_2\" or \"eager\")"  \
	}

#endif
