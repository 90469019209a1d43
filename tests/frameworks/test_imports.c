/* Files written by others, understood as their framework understands them. */
#include "support.h"

/* torchtitan's TOML of a pipeline; [training] is last. */
#define STAGES                                                                                     \
	"[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"                             \
	"pipeline_parallel_degree = 4\n[training]\n"

struct foreign {
	const char *text;
	const char *target;   /* NULL: refused */
	const char *settings; /* "option=value option=value", or what the message says */
	const char *note;     /* part of one, NULL: none */
};

static const struct foreign files[] = {
	{"distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
	 "  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
	 "  fsdp_ofload_params: true\n",
		"accelerate", "gpus=8 strategy=FULL_SHARD param-dtype=bf16 wrap=block",
		"x:7: fsdp_config.fsdp_ofload_params: unknown key, ignored; did you mean "
		"fsdp_config.fsdp_offload_params?"},
	{"distributed_type: FSDP\nfsdp_config: {version: 2, offload_params: false, "
	 "reshard_after_forward: false}\n",
		"accelerate", "strategy=SHARD_GRAD_OP cpu-offload=none sync-each-micro-batch=off",
		NULL},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n",
		"accelerate-fsdp1",
		"strategy=HYBRID_SHARD prefetch=none wrap=model param-dtype=fp32",
		"nothing is wrapped"},
	/* accelerate 1.15, commands/launch.py: --fsdp_sharding_strategy, default "FULL_SHARD". */
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n"
	 "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n",
		"accelerate-fsdp1", "strategy=FULL_SHARD",
		"x:4: fsdp_config.fsdp_reshard_after_forward: SHARD_GRAD_OP: accelerate runs "
		"FULL_SHARD"},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: true\n"
	 "  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
		"accelerate-fsdp1", "strategy=SHARD_GRAD_OP", NULL},
	{"{\"per_device_train_batch_size\": 1, \"fsdp\": true,\n\"fsdp_config\": "
	 "{\"version\": 1, \"reshard_after_forward\": \"shard_grad_op\"}}\n",
		"hf-trainer-fsdp1", "strategy=SHARD_GRAD_OP",
		"FULL_SHARD unless FSDP_SHARDING_STRATEGY=SHARD_GRAD_OP is set"},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
	 "  fsdp_forward_prefetch: true\n",
		NULL, "x:4:26: fsdp_forward_prefetch: FSDP2 refuses it in accelerate", NULL},
	{"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
	 "  fsdp_reshard_after_forward: maybe\n",
		NULL, "x:4:31: fsdp_reshard_after_forward: expected true or false, got \"maybe\"",
		NULL},
	{"distributed_type: FSDP\nnum_processes: 0\nfsdp_config: {fsdp_version: 2}\n", NULL,
		"x:2:16: num_processes: expected a whole number above 0, got \"0\"", NULL},
	{"distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
	 "parallelism_config: {parallelism_config_sp_size: 2}\n",
		NULL, "x:4:50: parallelism_config_sp_size: 2: not predicted of this framework",
		NULL},
	{"distributed_type: FSDP\nnum_processes: 16\nmixed_precision: bf16\n"
	 "fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}\n"
	 "parallelism_config:\n  parallelism_config_dp_replicate_size: 1\n"
	 "  parallelism_config_dp_shard_size: 2\n  parallelism_config_tp_size: 4\n"
	 "  parallelism_config_cp_size: 2\n  parallelism_config_cp_comm_strategy: alltoall\n",
		"accelerate",
		"gpus=16 tensor=4 sequence-parallel=off context=2 context-method=ring "
		"strategy=FULL_SHARD",
		NULL},
	{"model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 4\n"
	 "  virtual_pipeline_model_parallel_size: 2\n  sequence_parallel: true\n"
	 "  context_parallel_size: 1\n  recompute_granularity: null\n"
	 "train: {micro_batch_size: 1, global_batch_size: 64}\n"
	 "ddp: {use_distributed_optimizer: true, overlap_grad_reduce: false}\n"
	 "mixed_precision: bf16_mixed\n",
		"megatron-bridge",
		"tensor=2 pipeline=4 virtual-stages=2 pipeline-schedule=interleaved "
		"sequence-parallel=on micro-batch=1 global-batch=64 strategy=ZERO_1 overlap=none "
		"param-dtype=bf16 reduce-dtype=fp32 loss=fused dropout=off runtime=megatron",
		NULL},
	{"model:\n  tensor_model_parallel_size: 2\n  expert_model_parallel_size: 4\n"
	 "  sequence_parallel: true\n  moe_token_dispatcher_type: flex\n"
	 "  moe_expert_capacity_factor: 1.25\n  moe_pad_expert_input_to_capacity: true\n"
	 "comm_overlap: {tp_comm_overlap: true}\n",
		"megatron-bridge",
		"tensor=2 expert=4 expert-tensor=2 capacity-factor=1.25 async-tensor=on",
		"moe_token_dispatcher_type: flex: predicted as alltoall"},
	{"model:\n  tensor_model_parallel_size: 1\n  expert_model_parallel_size: 4\n  "
	 "moe_token_dispatcher_type: flex\n"
	 "  moe_flex_dispatcher_backend: hybridep\n",
		"megatron-bridge", "expert=4 expert-dispatch=deepep",
		"moe_flex_dispatcher_backend: hybridep: predicted as deepep"},
	{"model:\n  expert_model_parallel_size: 4\n  pipeline_model_parallel_size: 1\n"
	 "comm_overlap:\n  overlap_moe_expert_parallel_comm: true\n"
	 "  delay_wgrad_compute: true\n",
		"megatron-bridge", "expert=4 expert-overlap=on",
		"delay_wgrad_compute: true: is not predicted"},
	{"model:\n  recompute_granularity: selective\n  recompute_modules: [moe_act, layernorm]\n"
	 "  pipeline_model_parallel_size: 1\n",
		"megatron-bridge",
		"activation-checkpointing=selective recompute-modules=layernorm+moe_act", NULL},
	{"model:\n  recompute_granularity: selective\n  recompute_modules:\n  - mhc\n  - moe\n"
	 "  pipeline_model_parallel_size: 1\n",
		"megatron-bridge", "activation-checkpointing=selective recompute-modules=moe",
		"recompute_modules[]: mhc: is not predicted"},
	{"model: {expert_model_parallel_size: 4, pipeline_model_parallel_size: 1, "
	 "moe_shared_expert_overlap: true}\n",
		"megatron-bridge", "expert=4", "moe_shared_expert_overlap: true: is not predicted"},
	{"model: {tensor_model_parallel_size: 2}\nmixed_precision: "
	 "bf16-with-fp8-delayed-scaling-mixed"
	 "\n",
		"megatron-bridge", "param-dtype=bf16 fp8=delayed fp8-param-gather=on", NULL},
	{"model: {tensor_model_parallel_size: 2}\nmixed_precision: "
	 "bf16_with_fp8_current_scaling_mixed"
	 "\n",
		"megatron-bridge", "param-dtype=bf16 fp8=tensorwise fp8-param-gather=on",
		"the first and the last block in bf16: predicted in fp8"},
	{"model: {tensor_model_parallel_size: 2}\nmixed_precision: {fp8: hybrid, fp8_recipe: "
	 "delayed, "
	 "fp8_param_gather: true}\n",
		"megatron-bridge", "param-dtype=bf16 fp8=delayed fp8-param-gather=on", NULL},
	{"model: {tensor_model_parallel_size: 2}\nmixed_precision: bf16_with_mxfp8_mixed\n",
		"megatron-bridge", "param-dtype=bf16 fp8=mxfp8 fp8-param-gather=on", NULL},
	{"model: {tensor_model_parallel_size: 2}\nmixed_precision: "
	 "bf16_with_fp8_subchannel_scaling_mixed\n",
		"megatron-bridge", "param-dtype=bf16 fp8=blockwise", NULL},
	{"model: {tensor_model_parallel_size: 2}\nmixed_precision: bf16_with_nvfp4_mixed\n",
		"megatron-bridge", "param-dtype=bf16 fp8=nvfp4 fp8-param-gather=on", NULL},
	{"model: {tensor_model_parallel_size: 2}\nmixed_precision: {fp4: e2m1, fp4_recipe: "
	 "nvfp4, fp4_param_gather: true}\n",
		"megatron-bridge", "param-dtype=bf16 fp8=nvfp4 fp8-param-gather=on", NULL},
	{"trainer: {devices: 8, num_nodes: 2, precision: bf16}\nmodel:\n"
	 "  micro_batch_size: 1\n  global_batch_size: 64\n  tensor_model_parallel_size: 2\n"
	 "  pipeline_model_parallel_size: 1\n  optim: {name: distributed_fused_adam}\n",
		"megatron-bridge",
		"gpus=16 tensor=2 sequence-parallel=off strategy=ZERO_1 overlap=none "
		"micro-batch=1 param-dtype=bf16 loss=parallel",
		NULL},
	{"model: {tensor_model_parallel_size: 2, fp8: hybrid}\n", "megatron-bridge",
		"param-dtype=bf16", "model.fp8: hybrid: mixed_precision decides"},
	{"trainer: {precision: bf16}\nmodel:\n  tensor_model_parallel_size: 2\n"
	 "  micro_batch_size: 1\n  fp8: True\n  fp8_params: True\n  ub_tp_comm_overlap: True\n"
	 "  sequence_parallel: True\n  activations_checkpoint_granularity: selective\n"
	 "  defer_embedding_wgrad_compute: True\n"
	 "  optim: {name: mcore_distributed_optim, overlap_grad_sync: True,\n"
	 "    overlap_param_sync: True, grad_sync_dtype: bf16}\n",
		"megatron-bridge",
		"async-tensor=on strategy=ZERO_1 overlap=all reduce-dtype=bf16 fp8=delayed "
		"fp8-param-gather=on activation-checkpointing=selective",
		"defer_embedding_wgrad_compute: True: is not predicted"},
	{"{\"zero_optimization\": {\"stage\": 1},\n\"tensor_parallel\": {\"autotp_size\": 4}}",
		NULL, "x:2:36: autotp_size: 4: not predicted of this framework, expected 1", NULL},
	{"distributed_type: FSDP\nfsdp_config: yes\n", NULL,
		"x:2:14: fsdp_config: expected a map of options, got \"yes\"", NULL},
	{"distributed_type: MULTI_GPU\nnum_processes: 4\nnum_processes: 8\n", "accelerate",
		"strategy=NO_SHARD runtime=pytorch-ddp gpus=8", NULL},
	{"{\"train_batch_size\": 128, \"train_micro_batch_size_per_gpu\": 2, "
	 "\"gradient_accumulation_steps\": 4, \"zero_optimization\": {\"stage\": 3, "
	 "\"reduce_bucket_size\": 1e6, \"offload_param\": {\"device\": \"nvme\"}}}",
		"deepspeed",
		"gpus=16 micro-batch=2 cpu-offload=parameters strategy=FULL_SHARD "
		"runtime=pytorch-fsdp2 param-dtype=fp32",
		"reduce_bucket_size: 1e6: predicted with DeepSpeed's default of 500000000 "
		"elements"},
	/* The block has no switch for checkpointing itself. */
	{"{\"zero_optimization\": {\"stage\": 2}, \"activation_checkpointing\": "
	 "{\"partition_activations\": false}}",
		"deepspeed", "strategy=ZERO_2", "does not switch checkpointing on"},
	{"{\"zero_optimization\": {\"stage\": 2}, \"activation_checkpointing\": "
	 "{\"partition_activations\": true}}",
		"deepspeed", "strategy=ZERO_2", "true: is not predicted"},
	{"{\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 8}, \"bf16\": "
	 "{\"enabled\": true}}",
		"deepspeed", "strategy=HYBRID_SHARD shard-group=8 reduce-dtype=bf16",
		"MiCS is predicted as"},
	{"{\"zero_optimization\": {\"stage\": 5}}", NULL, "expected 0, 1, 2 or 3, got \"5\"", NULL},
	{"{\"train_micro_batch_size_per_gpu\": \"auto\", \"zero_optimization\": {\"stage\": 2}}",
		"deepspeed", "sync-each-micro-batch=on", "auto: add --micro-batch"},
	{"{\"fsdp\": \"shard_grad_op auto_wrap\", \"fsdp_config\": {\"version\": 2, "
	 "\"fsdp_auto_wrap_policy\": \"SIZE_BASED_WRAP\", \"min_num_params\": 5000}, \"bf16\": "
	 "\"true\"}",
		"hf-trainer",
		"strategy=SHARD_GRAD_OP wrap=size:5000 param-dtype=bf16 sync-each-micro-batch=off",
		NULL},
	{"base_model: Qwen/Qwen3-8B\nsequence_len: 8192\nmicro_batch_size: 1\nbf16: auto\n"
	 "fsdp_version: 2\ndp_shard_size: 8\ndp_replicate_size: 2\n"
	 "fsdp_config: {reshard_after_forward: false}\n",
		"axolotl", "gpus=16 shard-group=8 strategy=HYBRID_SHARD_ZERO2 seq-len=8192", NULL},
	{"variables: {n: 2048}\nmax_seq_len: ${variables.n}\nglobal_train_batch_size: 64\n"
	 "device_train_microbatch_size: auto\nprecision: amp_bf16\n"
	 "fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision: PURE}\n",
		"llm-foundry", "seq-len=2048 reduce-dtype=bf16 prefetch=post global-batch=64",
		"auto: add --micro-batch"},
	{"parallelism: {dp: 4, expert_parallel_size: 2}\noptimizer: {zero_stage: 1}\n", NULL,
		"expert_parallel_size: 2: not predicted of this framework", NULL},
	{"{\"zero_optimization\": {\"stage\": 1}, \"pipeline\": {\"stages\": 4}}", NULL,
		"stages: 4: not predicted of this framework", NULL},
	/* A file without words means nanotron's engine afab; tensor ranks have whole sequences and
	 * wait. */
	{"parallelism: {dp: 4, tp: 2, pp: 2}\noptimizer: {zero_stage: 1}\n", "nanotron",
		"gpus=16 tensor=2 pipeline=2 pipeline-schedule=gpipe sequence-parallel=off "
		"serial-tensor=on",
		NULL},
	{"parallelism: {dp: 4, tp: 2, pp: 2, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, "
	 "tp_linear_async_communication: true}\n",
		"nanotron", "gpus=16 pipeline-schedule=1f1b sequence-parallel=on serial-tensor=off",
		NULL},
	{"parallelism: {dp: 4, tp: 2, tp_mode: REDUCE_SCATTER, tp_recompute_allgather: false}\n",
		"nanotron", "gpus=8 sequence-parallel=on keep-gathered=on", NULL},
	{"parallelism: {dp: 4, tp: 1, pp: 2, pp_engine: zbv}\n", NULL,
		"pp_engine: expected 1f1b or afab, got \"zbv\"", NULL},
	{"[training]\nlocal_batch_size = 2\nseq_len = 4_096\nmax_norm = inf\n\n[parallelism]\n"
	 "data_parallel_shard_degree = -1 # the rest\n[activation_checkpoint]\nmode = 'full'\n",
		"torchtitan-toml",
		"micro-batch=2 seq-len=4096 clip=0 strategy=FULL_SHARD "
		"activation-checkpointing=full",
		NULL},
	/* torchtitan 0.2.2: a rank's sequences go through the pipeline one by one, and "default"
	 * reshards none. */
	{STAGES "local_batch_size = 8\nglobal_batch_size = 64\n", "torchtitan-toml",
		"pipeline=4 pipeline-schedule=1f1b micro-batch=1 grad-accum=8 global-batch=64 "
		"strategy=SHARD_GRAD_OP sync-each-micro-batch=off",
		NULL},
	/* 32 blocks, the head counts as 3: 36 over 12 stages. */
	{STAGES "local_batch_size = 8\n[parallelism]\nfsdp_reshard_after_forward = \"always\"\n"
		"pipeline_parallel_schedule = \"interleaved1f1b\"\n"
		"pipeline_parallel_microbatch_size = 2\npipeline_parallel_layers_per_stage = 3\n"
		"pipeline_parallel_last_stage_less_layers = 3\n",
		"torchtitan-toml",
		"pipeline-schedule=interleaved micro-batch=2 grad-accum=4 strategy=FULL_SHARD "
		"virtual-stages=3 layers-per-stage=2,3,3,3,3,3,3,3,3,3,3,0",
		NULL},
	{STAGES "local_batch_size = 8\n[parallelism]\npipeline_parallel_microbatch_size = 3\n",
		NULL, "expected a multiple of pipeline_parallel_microbatch_size 3, got 8", NULL},
	{STAGES "local_batch_size = 8\n[parallelism]\n"
		"pipeline_parallel_schedule = \"ZBVZeroBubble\"\n",
		"torchtitan-toml", "pipeline-schedule=zbv virtual-stages=2 grad-accum=8", NULL},
	{STAGES "local_batch_size = 8\n[parallelism]\n"
		"pipeline_parallel_schedule = \"InterleavedZeroBubble\"\n"
		"pipeline_parallel_layers_per_stage = 3\n",
		"torchtitan-toml", "pipeline-schedule=zb-h1 virtual-stages=3", NULL},
	{STAGES "[parallelism]\npipeline_parallel_schedule = \"LoopedBFS\"\n", NULL,
		"expected 1F1B, GPipe, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble or "
		"DualPipeV, got \"LoopedBFS\"",
		NULL},
	{STAGES "[parallelism]\nmodule_fqns_per_model_part = [[\"layers.0\"], [\"norm\"]]\n", NULL,
		"module_fqns_per_model_part[][]: stages by name are not read", NULL},
	{STAGES "[parallelism]\npipeline_parallel_split_points = [\"layers.8\"]\n", NULL,
		"pipeline_parallel_split_points[]: stages by name are not read", NULL},
	{STAGES "[parallelism]\npipeline_parallel_layers_per_stage = 5\n", NULL,
		"34 blocks with embedding and head make 7 stages, expected one for each of 4 ranks",
		NULL},
	{STAGES "[parallelism]\npipeline_parallel_first_stage_less_layers = 12\n", NULL,
		"the embedding counts as 12 blocks", NULL},
	{"--training.num_tokens_per_microbatch_per_dp_rank 8192\n--training.max_context_length "
	 "4096\n"
	 "--parallelism.pipeline_parallel_degree 2\n--parallelism.num_pp_microbatches 6\n"
	 "--parallelism.pipeline_parallel_first_stage_less_layers 2\n",
		"torchtitan-flags",
		"pipeline=2 pipeline-schedule=1f1b micro-batch=2 grad-accum=6 seq-len=4096",
		"add --layers-per-stage"},
	{"[training]\nseq_len = \n", NULL, "x:2:11: expected a value", NULL},
	{"[training]\nname = llama\n", NULL, "strings are quoted", NULL},
	{"from torchtitan.models.llama3.config_registry import llama3_8b\n\n"
	 "def mine():\n    cfg = llama3_8b()\n    cfg.parallelism = ParallelismConfig("
	 "data_parallel_replicate_degree=2, data_parallel_shard_degree=8)\n"
	 "    cfg.training.max_context_length = 4096\n"
	 "    cfg.training.num_tokens_per_microbatch_per_dp_rank = 2 * 4096\n"
	 "    cfg.activation_checkpoint = SelectiveAC.Config()\n    return cfg\n",
		"torchtitan",
		"gpus=16 shard-group=8 micro-batch=2 activation-checkpointing=selective", NULL},
	/* Several, and nobody says which. */
	{"from torchtitan.trainer import Trainer\ndef a():\n    return Trainer.Config()\n"
	 "def b() -> Trainer.Config:\n    return a()\n",
		NULL, "2 configurations, expected one; add --config with a or b", NULL},
	{"#!/bin/bash\nMBS=4\nSTRATEGY=${S:-\"optim_grads_params\"}\n"
	 "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py \\\n"
	 "  --micro-batch-size $MBS --seq-length ${LEN:-2048} --bf16 --use-megatron-fsdp \\\n"
	 "  --data-parallel-sharding-strategy ${STRATEGY}\n",
		"megatron-fsdp", "gpus=16 micro-batch=4 seq-len=2048 strategy=FULL_SHARD",
		"predicted as FSDP2"},
	{"#!/bin/bash\ntorchrun --nnodes 8 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 "
	 "--hidden-size "
	 "4096 \\\n"
	 "  --tensor-model-parallel-size 4 --sequence-parallel --context-parallel-size 2 \\\n"
	 "  --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 \\\n"
	 "  --micro-batch-size 1 --global-batch-size 128 --seq-length 8192 --bf16 \\\n"
	 "  --use-distributed-optimizer --num-distributed-optimizer-instances 2 \\\n"
	 "  --overlap-grad-reduce --fp8-format hybrid\n",
		"megatron",
		"gpus=64 tensor=4 sequence-parallel=on context=2 context-method=ring pipeline=2 "
		"virtual-stages=4 "
		"pipeline-schedule=interleaved strategy=ZERO_1 shard-group=2 overlap=gradients "
		"runtime=megatron dropout=on loss=parallel param-dtype=bf16 reduce-dtype=fp32 "
		"sync-each-micro-batch=off clip=1 fp8=delayed",
		NULL},
	{"base_model: m\nmicro_batch_size: 2\ndeepspeed: zero3.json\n", NULL,
		":3:12: deepspeed: DeepSpeed shards this model", NULL},
	{"{\"per_device_train_batch_size\": 1, \"deepspeed\": {\"zero_optimization\": {}, "
	 "\"steps_per_print\": 2}}",
		NULL, "DeepSpeed shards this model", NULL},
	{"{\"per_device_train_batch_size\": 1, \"deepspeed\": null}", "hf-trainer",
		"strategy=NO_SHARD", NULL},
	{"--micro-batch-size 1 --bf16 --recompute-granularity selective --recompute-modules "
	 "moe_act "
	 "layernorm \\\n core_attn --tensor-model-parallel-size 2\n",
		"megatron", "recompute-modules=core_attn+layernorm+moe_act tensor=2", NULL},
	{"--micro-batch-size 1 --bf16 --moe-layer-recompute\n", "megatron",
		"activation-checkpointing=selective recompute-modules=core_attn+moe", NULL},
	{"--micro-batch-size 1 --bf16 --recompute-modules moe_act\n", "megatron", "micro-batch=1",
		NULL},
	{"--micro-batch-size 1 --bf16 --optimizer dist_muon\n", "megatron", "optimizer=adamw-fused",
		"optimizer: dist_muon: is predicted as AdamW"},
	{"base_model: m\nsequence_len: 4096\nmicro_batch_size: 2\noptimizer: adamw_bnb_8bit\n",
		"axolotl", "micro-batch=2", "optimizer: adamw_bnb_8bit: is predicted as AdamW"},
	{"base_model: m\nsequence_len: 4096\nmicro_batch_size: 2\nliger_rms_norm: true\nplugins:\n"
	 "  - axolotl.integrations.liger.LigerPlugin\n"
	 "  - axolotl.integrations.kd.KDPlugin\n",
		"axolotl", "liger=on loss=upcast",
		"axolotl.integrations.kd.KDPlugin: is not predicted"},
	/* Without the plugin its keys do nothing. */
	{"base_model: m\nsequence_len: 4096\nmicro_batch_size: 2\nliger_rms_norm: true\n"
	 "liger_fused_linear_cross_entropy: true\n",
		"axolotl", "liger=off loss=upcast", NULL},
	{"base_model: m\nsequence_len: 4096\nmicro_batch_size: 2\nplugins:\n"
	 "  - axolotl.integrations.liger.LigerPlugin\n"
	 "liger_fused_linear_cross_entropy: true\n",
		"axolotl", "liger=off loss=fused-linear", NULL},
	/* Transformers turns on all of Liger's kernels unless told otherwise. */
	{"{\"per_device_train_batch_size\": 1, \"use_liger_kernel\": true}", "hf-trainer",
		"liger=on loss=fused-linear", NULL},
	{"{\"per_device_train_batch_size\": 1, \"use_liger_kernel\": true, "
	 "\"liger_kernel_config\": {\"fused_linear_cross_entropy\": false}}",
		"hf-trainer", "liger=on loss=upcast", NULL},
	{"{\"per_device_train_batch_size\": 1}", "hf-trainer", "liger=off loss=upcast", NULL},
	{"--micro-batch-size 1 --bf16 --use-distributed-optimizer --fp8-format hybrid --fp8-recipe "
	 "tensorwise --fp8-param-gather\n",
		"megatron", "fp8=tensorwise fp8-param-gather=on", NULL},
	{"--micro-batch-size 1 --bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather "
	 "--reuse-grad-buf-for-mxfp8-param-ag\n",
		"megatron", "param-dtype=bf16 fp8=mxfp8 fp8-param-gather=on", NULL},
	{"--micro-batch-size 1 --bf16 --fp4-format e2m1 --fp4-param-gather\n", "megatron",
		"param-dtype=bf16 fp8=nvfp4 fp8-param-gather=on", NULL},
	{"--micro-batch-size 1 --bf16 --fp4-format e2m1 --fp4-recipe custom\n", "megatron",
		"param-dtype=bf16", "custom: predicted as bf16"},
	{"--micro-batch-size 1 --bf16 --fp8-format e4m3 --fp8-recipe blockwise\n", "megatron",
		"param-dtype=bf16 fp8=blockwise", NULL},
	{"--micro-batch-size 1 --bf16 --num-experts 8 --moe-token-dispatcher-type alltoall "
	 "--moe-grouped-gemm\n",
		"megatron", "param-dtype=bf16 unfused-permute=on", NULL},
	{"--micro-batch-size 1 --bf16 --num-experts 8 --moe-token-dispatcher-type alltoall "
	 "--moe-grouped-gemm --moe-permute-fusion\n",
		"megatron", "param-dtype=bf16", NULL},
	{"model: {tensor_model_parallel_size: 2, num_moe_experts: 8, moe_permute_fusion: false}\n"
	 "mixed_precision: bf16_mixed\n",
		"megatron-bridge", "param-dtype=bf16 unfused-permute=on", NULL},
	{"--micro-batch-size 1 --bf16 --pipeline-model-parallel-size 2 --mtp-num-layers 1\n"
	 "--pipeline-model-parallel-layout Et*3|t*3|t*3|t*2mL\n",
		"megatron", "mtp-layers=1 pipeline=2 virtual-stages=2", NULL},
	{"--micro-batch-size 1 --bf16 --pipeline-model-parallel-size 2 --mtp-num-layers 1\n"
	 "--pipeline-model-parallel-layout Et*3|t*3mL\n",
		"megatron", "mtp-layers=1 pipeline=2 layers-per-stage=3,4", NULL},
	{"--micro-batch-size 1 --bf16 --mtp-num-layers 2\n", "megatron", "mtp-layers=2", NULL},
	{"--micro-batch-size 1 --bf16 --pipeline-model-parallel-size 2 --mtp-num-layers 1\n",
		"megatron", "pipeline=2",
		"mtp-num-layers: predicted without these modules, as no layout places them"},
	{"model: {tensor_model_parallel_size: 2, mtp_num_layers: 1}\nmixed_precision: bf16_mixed\n",
		"megatron-bridge", "param-dtype=bf16 mtp-layers=1", NULL},
	{"--micro-batch-size 1 --bf16 --fp8-format e4m3 --fp8-recipe custom\n", "megatron",
		"param-dtype=bf16", "custom: predicted as bf16"},
	{"[model]\nconverters = [\"quantize.linear.float8\", \"quantize.grouped_mm.mx\"]\n"
	 "[quantize.linear.float8]\n"
	 "recipe_name = \"rowwise\"\nfilter_fqns = [\"output\"]\n[training]\nseq_len = 4096\n",
		"torchtitan-toml", "fp8=rowwise", "quantize.grouped_mm.mx: is not predicted"},
	{"[model]\nconverters = [\"quantize.linear.mx\"]\n[quantize.linear.mx]\n"
	 "recipe_name = \"mxfp8_cublas\"\nfilter_fqns = [\"output\"]\n[training]\nseq_len = 4096\n",
		"torchtitan-toml", "fp8=mxfp8", NULL},
	{"from torchtitan.models.llama3 import model_registry\n\ndef mine():\n"
	 "    cfg = llama3_8b()\n    cfg.model_spec = model_registry(\"8B\", converters=["
	 "MXFP8LinearConverter.Config(fqns=[\"attention\"])])\n    return cfg\n",
		"torchtitan", "fp8=mxfp8", NULL},
	{"[parallelism]\nexpert_parallel_degree = 1\nexpert_parallel_comm_backend = \"deepep\"\n"
	 "[training]\nseq_len = 4096\n",
		"torchtitan-toml", "seq-len=4096", NULL},
	{"[parallelism]\nexpert_parallel_degree = 8\nexpert_parallel_comm_backend = \"deepep\"\n"
	 "[training]\nseq_len = 4096\n",
		"torchtitan-toml", "expert=8 expert-dispatch=deepep seq-len=4096", NULL},
	{"[model]\nconverters = [\"float8\"]\n[training]\nbatch_size = 6\ncompile = true\n"
	 "[parallelism]\nenable_async_tensor_parallel = true\ntensor_parallel_degree = 8\n"
	 "[float8]\nrecipe_name = \"rowwise\"\n",
		"torchtitan-toml", "fp8=rowwise micro-batch=6 compile=on tensor=8 async-tensor=on",
		NULL},
	{"[training]\ntensor_parallel_degree = 8\ndata_parallel_shard_degree = 4\ncompile = true\n"
	 "[experimental]\nenable_async_tensor_parallel = true\n",
		"torchtitan-toml", "gpus=32 compile=on tensor=8 async-tensor=on", NULL},
	{"from torchtitan.models.llama3 import model_registry\n\ndef mine():\n"
	 "    cfg = llama3_8b()\n    cfg.parallelism.tensor_parallel_degree = 2\n"
	 "    cfg.compile = CompileConfig(enable=True, enable_async_tensor_parallel=True)\n"
	 "    return cfg\n",
		"torchtitan", "compile=on tensor=2 async-tensor=on", NULL},
	{"[model]\nconverters = [\"float8\"]\n[float8]\n[training]\nseq_len = 4096\n"
	 "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\n",
		"torchtitan-toml", "fp8=tensorwise fp8-param-gather=on", NULL},
	{"from torchtitan.models.llama3 import model_registry\n\ndef mine():\n"
	 "    cfg = llama3_8b()\n    cfg.model_spec = model_registry(\"8B\", converters=["
	 "Float8LinearConverter.Config(recipe_name=\"tensorwise\")])\n    return cfg\n",
		"torchtitan", "fp8=tensorwise", NULL},
	{"--micro-batch-size 4 --fp16 --hidden-dropout 0 --attention-dropout 0.0 --num-layers 12\n"
	 "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
	 "--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2 "
	 "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te --recompute-granularity full "
	 "--recompute-method uniform --recompute-num-layers 2\n",
		"megatron",
		"strategy=NO_SHARD overlap=none dropout=off param-dtype=fp16 reduce-dtype=fp16 "
		"sequence-parallel=off layers-per-stage=1x2+2x4+1x2 pipeline-schedule=1f1b "
		"loss=fused activation-checkpointing=full",
		"recompute-num-layers: 2: predicted as pieces of one layer"},
	{"--micro-batch-size 1 --num-layers 61 --pipeline-model-parallel-size 16 "
	 "--pipeline-model-parallel-layout 'Et*2|(tt|)*29,t|L'\n",
		"megatron",
		"pipeline-schedule=interleaved virtual-stages=2 "
		"layers-per-stage=2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,"
		"2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,1,0",
		NULL},
	{"--micro-batch-size 1 --pipeline-model-parallel-size 2 "
	 "--pipeline-model-parallel-layout Ett|tt|L\n",
		NULL, "3 stages are not as many on 2 ranks", NULL},
	{"--micro-batch-size 1 --pipeline-model-parallel-size 2 "
	 "--pipeline-model-parallel-layout 'Ett|(ttL'\n",
		NULL, "expected a layout such as Et*7|t*8|t*7L, got \"Ett|(ttL\"", NULL},
	{"--micro-batch-size 1 --num-layers 32 --recompute-granularity full --recompute-method "
	 "block "
	 "--recompute-num-layers 8 --hidden-dropout 0 --bf16 --grad-reduce-in-bf16\n",
		"megatron", "activation-checkpointing=8xfull+24xnone dropout=on reduce-dtype=bf16",
		NULL},
	{"--micro-batch-size 1 --context-parallel-size 4 --cp-comm-type a2a --hidden-dropout 0\n",
		"megatron", "context=4 context-method=all-to-all", NULL},
	/* Options in YAML, a switch that is off among them; a script without its first line. */
	{"ENV_VARS:\n  A: 1\nMODEL_ARGS:\n  --micro-batch-size: 2\n  --bf16: true\n"
	 "  --sequence-parallel: false\n  --tensor-model-parallel-size: 2\n",
		"megatron", "micro-batch=2 param-dtype=bf16 tensor=2 sequence-parallel=off", NULL},
	{"--micro-batch-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
	 "--tp-comm-overlap\n",
		"megatron", "tensor=2 sequence-parallel=on async-tensor=on", NULL},
	{"--micro-batch-size 2 --cuda-graph-impl full_iteration\n", "megatron",
		"micro-batch=2 cuda-graph-scope=full_iteration", NULL},
	{"--micro-batch-size 2 --cuda-graph-impl transformer_engine --cuda-graph-modules attn "
	 "moe_router moe_preprocess\n",
		"megatron", "cuda-graph-scope=attn+moe_router+moe_preprocess", NULL},
	{"MODEL_ARGS:\n  --micro-batch-size: 2\n  --recompute-granularity: selective\n"
	 "  --recompute-modules: \"[moe_act]\"\n  --cuda-graph-impl: local\n"
	 "  --cuda-graph-modules: \"[attn moe_router]\"\n",
		"megatron", "recompute-modules=moe_act cuda-graph-scope=attn+moe_router", NULL},
	{"--micro-batch-size 2 --cuda-graph-impl local --cuda-graph-scope full_iteration\n",
		"megatron", "cuda-graph-scope=full_iteration", NULL},
	{"--micro-batch-size 2 --cuda-graph-impl local\n", "megatron", "cuda-graph-scope=attn+mlp",
		NULL},
	{"--micro-batch-size 2 --external-cuda-graph --cuda-graph-scope full\n", "megatron",
		"cuda-graph-scope=attn+mlp", NULL},
	{"--micro-batch-size 2 --enable-cuda-graph --num-experts 8\n", "megatron",
		"cuda-graph-scope=attn+moe", NULL},
	{"--micro-batch-size 2 --cuda-graph-modules attn\n", "megatron", "micro-batch=2", NULL},
	{"model:\n  cuda_graph_impl: transformer_engine\n  expert_model_parallel_size: 4\n"
	 "  pipeline_model_parallel_size: 1\n",
		"megatron-bridge", "cuda-graph-scope=attn+moe", NULL},
	{"--micro-batch-size 2 --cuda-graph-impl local --cuda-graph-modules mamba attn\n",
		"megatron", "cuda-graph-scope=attn", "cuda-graph-modules: mamba: is not predicted"},
	{"model:\n  cuda_graph_impl: transformer_engine\n  cuda_graph_scope: [moe_router, "
	 "moe_preprocess]\n  pipeline_model_parallel_size: 1\n",
		"megatron-bridge", "cuda-graph-scope=moe_router+moe_preprocess", NULL},
	{"torchrun --nproc_per_node 8 pretrain_gpt.py \\\n  --micro-batch-size 2\n", "megatron",
		"gpus=8 micro-batch=2", NULL},
	{"MBS=4\npython pretrain_gpt.py --micro-batch-size $MBS\n", "megatron", "micro-batch=4",
		NULL},
	{"--micro-batch-size 1 --num-layers 6 --pipeline-model-parallel-size 4 "
	 "--num-virtual-stages-per-pipeline-rank 2 --account-for-embedding-in-pipeline-split "
	 "--account-for-loss-in-pipeline-split\n",
		"megatron", "pipeline=4 virtual-stages=2 layers-per-stage=1x0+6x1+1x0", NULL},
	{"--micro-batch-size 1 --num-layers 31 --pipeline-model-parallel-size 2 "
	 "--account-for-embedding-in-pipeline-split\n",
		"megatron", "layers-per-stage=1x15+1x16", NULL},
	{"--micro-batch-size 1 --num-layers 30 --pipeline-model-parallel-size 4 "
	 "--account-for-loss-in-pipeline-split\n",
		NULL, "make 4 equal stages", NULL},
	{"--micro-batch-size 1 --context-parallel-size 4 --cp-comm-type a2a+p2p\n", "megatron",
		"context=4 context-method=ring", "cp-comm-type: a2a+p2p: predicted as p2p"},
	{"--micro-batch-size 1 --tensor-model-parallel-size 4 --sequence-parallel --num-experts 8 "
	 "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 "
	 "--moe-token-dispatcher-type alltoall --moe-grouped-gemm\n",
		"megatron", "tensor=4 sequence-parallel=on expert=8 expert-tensor=1", NULL},
	{"--micro-batch-size 1 --expert-model-parallel-size 8 --moe-expert-capacity-factor 1.0 "
	 "--moe-grouped-gemm --moe-token-dispatcher-type alltoall\n",
		"megatron", "expert=8 expert-tensor=1 capacity-factor=1.0", "without padding"},
	{"--micro-batch-size 1 --expert-model-parallel-size 8\n", "megatron", "expert=8",
		"experts one after another"},
	{"--micro-batch-size 1 --expert-model-parallel-size 8 --moe-expert-capacity-factor x\n",
		NULL, "moe-expert-capacity-factor: expected a number above 0, got \"x\"", NULL},
	{"--micro-batch-size 1 --use-megatron-fsdp --expert-model-parallel-size 8\n", NULL,
		"expert-model-parallel-size: 8: not predicted of this framework, expected 1", NULL},
	{"--micro-batch-size 1 --context-parallel-size 4 --cp-comm-type ulysses\n", NULL,
		"cp-comm-type: expected one of p2p, all_gather, a2a and a2a+p2p for all blocks, "
		"got \"ulysses\"",
		NULL},
	{"[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
	 "context_parallel_degree = 2\ncontext_parallel_rotate_method = \"alltoall\"\n"
	 "[training]\nlocal_batch_size = 1\n",
		"torchtitan-toml", "context=2 context-method=ring", NULL},
	{"--micro-batch-size 1 --hidden-dropout 2\n", NULL,
		"hidden-dropout: expected a probability, got \"2\"", NULL},
	{"--micro-batch-size 1 --num-layers 30 --pipeline-model-parallel-size 4 "
	 "--num-layers-per-virtual-pipeline-stage 4\n",
		NULL, "expected a size that makes whole stages of 30 blocks on 4 ranks", NULL},
	{"--micro-batch-size 1 --num-layers 30 --pipeline-model-parallel-size 4 "
	 "--decoder-first-pipeline-num-layers 5\n",
		NULL, "expected blocks that leave as many to each other stage", NULL},
	{"import torch\nmesh = init_device_mesh('cuda', (2, 8))\nmodel = FSDP(model, "
	 "sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2,\n  limit_all_gathers=False, "
	 "auto_wrap_policy=policy, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))\n",
		"pytorch-fsdp1",
		"strategy=HYBRID_SHARD_ZERO2 shard-group=8 limit-all-gathers=off "
		"param-dtype=bf16 wrap=block",
		NULL},
	{"import torch\nfor b in blocks:\n    fully_shard(b, mesh=mesh, "
	 "reshard_after_forward=4)\n",
		"pytorch", "strategy=FULL_SHARD reshard-after-forward=4", NULL},
	{"answer: 42\n", NULL, "no configuration of a framework that is known here", NULL},
	{"distributed_type: [\n", NULL, "x:", NULL},
};

static bool has_setting(const struct imported *imported, const char *pair, size_t length)
{
	const char *equals = memchr(pair, '=', length);
	size_t name = (size_t)(equals - pair);

	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		if (strlen(setting->option) == name && strncmp(setting->option, pair, name) == 0)
			return strlen(setting->value) == length - name - 1 &&
			       strncmp(setting->value, equals + 1, length - name - 1) == 0;
	}
	return false;
}

static void check_settings(const struct foreign *file, const struct imported *imported)
{
	assert_string_equal(imported->target->name, file->target);
	for (const char *pair = file->settings; *pair != '\0';) {
		size_t length = strcspn(pair, " ");
		if (!has_setting(imported, pair, length))
			fail_msg("no %.*s in\n%s", (int)length, pair, file->text);
		pair += length + (pair[length] == ' ');
	}
}

static void check_note(const struct foreign *file, const struct imported *imported)
{
	bool found = file->note == NULL;

	for (int i = 0; i < imported->n_notes; i++)
		found = found || strstr(imported->notes[i].text, file->note) != NULL;
	if (!found)
		fail_msg("no note \"%s\" for\n%s", file->note, file->text);
}

static void foreign_files(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(files); i++) {
		const struct foreign *file = &files[i];
		struct arena arena = {0};
		struct error error = {0};
		struct imported imported;
		bool ok = import_config(&arena, "x", file->text, strlen(file->text), NULL, NULL, 0,
			&imported, &error);
		if (file->target == NULL) {
			if (ok)
				fail_msg("not refused:\n%s", file->text);
			assert_int_equal(error.code, EXIT_CODE_INPUT);
			if (strstr(error.message, file->settings) == NULL)
				fail_msg("got \"%s\", expected \"%s\"", error.message,
					file->settings);
		} else {
			if (!ok)
				fail_msg("%s\n%s", error.message, file->text);
			check_settings(file, &imported);
			check_note(file, &imported);
		}
		arena_finish(&arena);
	}
}

/* Nothing is said of what changes nothing: asynchronous tensor parallelism where there are no
 * tensor ranks, and a key of a model that is nearly one of ours. */
static void nothing_to_say(void **state)
{
	static const char *const texts[] = {"[training]\nseq_len = 4096\n[compile]\nenable = true\n"
					    "[parallelism]\nenable_async_tensor_parallel = true\n",
		"model: {tensor_model_parallel_size: 1, moe_router_topk: 2}\n"};
	(void)state;
	for (int t = 0; t < COUNT_OF(texts); t++) {
		struct arena arena = {0};
		struct imported imported;
		struct error error = {0};
		assert_true(import_config(
			&arena, "x", texts[t], strlen(texts[t]), NULL, NULL, 0, &imported, &error));
		for (int i = 0; i < imported.n_settings; i++)
			assert_int_not_equal(imported.settings[i].knob, KNOB_ASYNC_TENSOR);
		assert_int_equal(imported.n_notes, 0);
		arena_finish(&arena);
	}
}

static struct imported read_function(struct arena *arena, const char *function)
{
	static const char text[] =
		"from torchtitan.trainer import Trainer\n\n"
		"def small() -> Trainer.Config:\n"
		"    return Trainer.Config(training=TrainingConfig(local_batch_size=2, "
		"seq_len=512))\n\n"
		"def large() -> Trainer.Config:\n"
		"    config = small()\n    config.training.seq_len = 8192\n    return config\n\n"
		"def tensor() -> Trainer.Config:\n"
		"    return Trainer.Config(parallelism=ParallelismConfig("
		"tensor_parallel_degree=8))\n";
	struct imported imported;
	struct error error = {0};

	if (!import_config(arena, "x", text, strlen(text), NULL, function, 0, &imported, &error))
		fail_msg("%s: %s", function, error.message);
	return imported;
}

/* One function, and those that it calls; another's tensor parallelism is not in the way. */
static void one_function_of_a_file(void **state)
{
	struct arena arena = {0};
	struct imported small = read_function(&arena, "small");
	struct imported large = read_function(&arena, "large");

	(void)state;
	assert_true(has_setting(&small, "seq-len=512", 11));
	assert_true(has_setting(&large, "seq-len=8192", 12));
	assert_true(has_setting(&large, "micro-batch=2", 13));
	arena_finish(&arena);
}

/* Notes come in the order of the file's lines, whatever is read first. */
static void notes_in_order(void **state)
{
	static const char text[] = "{\"zero_optimization\": {\"stage\": 3,\n"
				   "\"offload_param\": {\"device\": \"nvme\"},\n"
				   "\"reduce_bucket_size\": 1e6},\n\"gradient_clipping\": "
				   "\"auto\",\n\"unknown\": 1}";
	struct arena arena = {0};
	struct imported imported;

	(void)state;
	assert_true(import_config(&arena, "x", text, strlen(text), NULL, NULL, 0, &imported, NULL));
	assert_int_equal(imported.n_notes, 5);
	for (int i = 1; i < imported.n_notes; i++)
		assert_true(imported.notes[i - 1].line <= imported.notes[i].line);
	arena_finish(&arena);
}

/* accelerate 1.15 on Llama-2-7B: the head's unit is the one that stays gathered. */
static void tail_stays(void **state)
{
	static const char text[] = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, "
				   "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n";
	static const struct {
		const char *model, *wrap, *reshard;
	} rows[] = {{"llama-2-7b", "block+embedding+head", "33xtrue+1xfalse"},
		{"gpt2-124m", "block", "true"}}; /* one weight, in the root */
	struct arena arena = {0};
	struct imported imported;

	(void)state;
	assert_true(import_config(&arena, "x", text, strlen(text), NULL, NULL, 0, &imported, NULL));
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct plan_file file;
		load(&arena, rows[i].model, "2xdgx-a100-80gb", &file);
		resolve(&file, &arena);
		import_settle(&imported, file.model, false, &arena, &file.plan);
		assert_string_equal(file.plan.wrap.text, rows[i].wrap);
		assert_string_equal(file.plan.reshard_after_forward.text, rows[i].reshard);
		assert_true(plan_check(&file.plan, file.model, file.topology, NULL));
	}
	arena_finish(&arena);
}

/* llm-foundry's mpt-7b.yaml is as wide and deep as Llama-2-7B and is none. Its MPTConfig has biases
 * and learned positions; the count is of these, by hand: V*h + s*h + L*(12h^2 + 13h) + 2h. */
static void model_is_spelled_out(void **state)
{
	static const char text[] = "max_seq_len: 2048\nglobal_train_batch_size: 64\nmodel:\n"
				   "  name: mpt_causal_lm\n  d_model: 4096\n  n_heads: 32\n"
				   "  n_layers: 32\n  vocab_size: 50368\n";
	const int64_t h = 4096;
	struct arena arena = {0};
	struct imported imported;
	struct model *model;

	(void)state;
	assert_true(import_config(&arena, "x", text, strlen(text), NULL, NULL, 0, &imported, NULL));
	assert_true(model_parse(&arena, "x", imported.model, strlen(imported.model), &model, NULL));
	assert_int_equal(model->architecture.family, FAMILY_MPT);
	assert_int_equal(
		model->parameter_count, 50368 * h + 2048 * h + 32 * (12 * h * h + 13 * h) + 2 * h);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(foreign_files),

		cmocka_unit_test(nothing_to_say),
		cmocka_unit_test(one_function_of_a_file),
		cmocka_unit_test(notes_in_order),
		cmocka_unit_test(tail_stays),
		cmocka_unit_test(model_is_spelled_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
