"""What other frameworks' files may contain: key -> type, re-typed from each framework's own declarations.

A type is bool, int, float (takes int too), str, list, dict (of a table), NONE in a tuple, or a
tuple of choices as strings. Sources stand beside each table; ours is the selection of keys that a
plan can need, and the types are theirs."""

NONE = type(None)
DTYPE = ('bfloat16', 'float32')

# accelerate 1.15: commands/config/config_args.py (BaseConfig, ClusterConfig), commands/launch.py
FSDP = {
    'fsdp_version': int,
    'fsdp_reshard_after_forward': bool,
    'fsdp_sharding_strategy': ('FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD', 'HYBRID_SHARD',
                               'HYBRID_SHARD_ZERO2'),
    'fsdp_auto_wrap_policy': ('TRANSFORMER_BASED_WRAP', 'SIZE_BASED_WRAP', 'NO_WRAP'),
    'fsdp_transformer_layer_cls_to_wrap': str,
    'fsdp_min_num_params': int,
    'fsdp_backward_prefetch': ('BACKWARD_PRE', 'BACKWARD_POST', 'NO_PREFETCH'),
    'fsdp_forward_prefetch': bool,
    'fsdp_state_dict_type': ('FULL_STATE_DICT', 'SHARDED_STATE_DICT', 'LOCAL_STATE_DICT'),
    'fsdp_offload_params': bool,
    'fsdp_use_orig_params': bool,
    'fsdp_sync_module_states': bool,
    'fsdp_cpu_ram_efficient_loading': bool,
    'fsdp_activation_checkpointing': bool,
}
DEEPSPEED_SHORT = {
    'deepspeed_multinode_launcher': ('standard', 'pdsh', 'openmpi', 'mvapich', 'mpich', 'slurm'),
    'gradient_accumulation_steps': int,
    'gradient_clipping': float,
    'offload_optimizer_device': ('none', 'cpu', 'nvme'),
    'offload_param_device': ('none', 'cpu', 'nvme'),
    'zero3_init_flag': bool,
    'zero3_save_16bit_model': bool,
    'zero_stage': int,
}
ACCELERATE = {
    'compute_environment': ('LOCAL_MACHINE', 'AMAZON_SAGEMAKER'),
    'distributed_type': ('NO', 'MULTI_CPU', 'MULTI_GPU', 'FSDP', 'DEEPSPEED', 'MEGATRON_LM'),
    'mixed_precision': ('no', 'fp16', 'bf16', 'fp8'),
    'num_machines': int,
    'num_processes': int,
    'machine_rank': int,
    'main_process_ip': str,
    'main_process_port': int,
    'rdzv_backend': ('static', 'c10d'),
    'same_network': bool,
    'main_training_function': str,
    'use_cpu': bool,
    'dynamo_config': {'dynamo_backend': ('INDUCTOR', 'NO')},
    'fsdp_config': FSDP,
    'deepspeed_config': DEEPSPEED_SHORT,
    'parallelism_config': {'parallelism_config_dp_replicate_size': int,
                           'parallelism_config_dp_shard_size': int,
                           'parallelism_config_tp_size': int,
                           'parallelism_config_cp_size': int,
                           'parallelism_config_cp_comm_strategy': ('allgather', 'alltoall')},
}

# Transformers 5: training_args.py (fields; _process_fsdp_args)
TRAINER_FSDP = {
    'version': int,
    'reshard_after_forward': (bool, 'full_shard', 'shard_grad_op', 'no_shard', 'hybrid_shard',
                              'hybrid_shard_zero2'),
    'auto_wrap_policy': ('TRANSFORMER_BASED_WRAP', 'SIZE_BASED_WRAP', 'NO_WRAP'),
    'transformer_layer_cls_to_wrap': list,
    'min_num_params': int,
    'cpu_offload': bool,
    'cpu_ram_efficient_loading': bool,
    'state_dict_type': ('FULL_STATE_DICT', 'SHARDED_STATE_DICT', 'LOCAL_STATE_DICT'),
    'activation_checkpointing': bool,
    'forward_prefetch': bool,
    'backward_prefetch': ('BACKWARD_PRE', 'BACKWARD_POST', 'NO_PREFETCH'),
    'use_orig_params': bool,
    'sync_module_states': bool,
    'limit_all_gathers': bool,
}
TRAINER = {
    'output_dir': str,
    'per_device_train_batch_size': int,
    'gradient_accumulation_steps': int,
    'bf16': bool,
    'fp16': bool,
    'optim': ('adamw_torch', 'adamw_torch_fused', 'sgd'),
    'max_grad_norm': float,
    'torch_compile': bool,
    'gradient_checkpointing': bool,
    'accelerator_config': {'gradient_accumulation_kwargs': {'sync_each_batch': bool}},
    'fsdp': bool,
    'fsdp_config': TRAINER_FSDP,
}

# DeepSpeed 0.19: runtime/constants.py, zero/config.py (extra keys are errors), offload_config.py
OFFLOAD = {'device': ('none', 'cpu', 'nvme'), 'pin_memory': bool}
DEEPSPEED = {
    'train_batch_size': int,
    'train_micro_batch_size_per_gpu': int,
    'gradient_accumulation_steps': int,
    'gradient_clipping': float,
    'bf16': {'enabled': bool},
    'fp16': {'enabled': bool},
    'communication_data_type': ('fp32', 'fp16', 'bf16'),
    'optimizer': {'type': ('AdamW', 'SGD'),
                  'params': {'lr': float, 'betas': list, 'eps': float, 'weight_decay': float,
                             'torch_adam': bool}},
    'zero_optimization': {
        'stage': int,
        'overlap_comm': bool,
        'contiguous_gradients': bool,
        'reduce_scatter': bool,
        'reduce_bucket_size': int,
        'allgather_partitions': bool,
        'allgather_bucket_size': int,
        'stage3_prefetch_bucket_size': int,
        'stage3_param_persistence_threshold': int,
        'stage3_max_live_parameters': int,
        'stage3_max_reuse_distance': int,
        'stage3_gather_16bit_weights_on_model_save': bool,
        'mics_shard_size': int,
        'mics_hierarchical_params_gather': bool,
        'zero_hpz_partition_size': int,
        'offload_optimizer': OFFLOAD,
        'offload_param': OFFLOAD,
    },
}

# axolotl of 2026-07-24: utils/schemas/config.py, training.py, fsdp.py
AXOLOTL = {
    'base_model': str,
    'sequence_len': int,
    'micro_batch_size': int,
    'gradient_accumulation_steps': int,
    'accelerator_config': {'gradient_accumulation_kwargs': {'sync_each_batch': bool}},
    'bf16': bool,
    'fp16': bool,
    'optimizer': ('adamw_torch', 'adamw_torch_fused', 'sgd'),
    'max_grad_norm': float,
    'attn_implementation': ('flash_attention_2', 'eager'),
    'torch_compile': bool,
    'gradient_checkpointing': bool,
    'fsdp_version': int,
    'fsdp_config': {
        'reshard_after_forward': bool,
        'auto_wrap_policy': ('TRANSFORMER_BASED_WRAP', 'SIZE_BASED_WRAP'),
        'transformer_layer_cls_to_wrap': str,
        'min_num_params': int,
        'offload_params': bool,
        'cpu_ram_efficient_loading': bool,
        'state_dict_type': ('FULL_STATE_DICT', 'SHARDED_STATE_DICT', 'LOCAL_STATE_DICT'),
        'activation_checkpointing': bool,
    },
    'dp_shard_size': int,
    'tensor_parallel_size': int,
    'dp_replicate_size': int,
}

# Composer of 2026-04-29: utils/parallelism.py (FSDPConfig); llm-foundry: TrainConfig
LLM_FOUNDRY = {
    'max_seq_len': int,
    'global_train_batch_size': int,
    'device_train_microbatch_size': int,
    'precision': ('amp_bf16', 'amp_fp16', 'fp32'),
    'compile_config': {'mode': str},
    'optimizer': {'name': ('decoupled_adamw',), 'lr': float, 'betas': list, 'eps': float,
                  'weight_decay': float},
    'algorithms': {'gradient_clipping': {'clipping_type': ('norm',), 'clipping_threshold': float}},
    'fsdp_config': {
        'sharding_strategy': ('NO_SHARD', 'SHARD_GRAD_OP', 'FULL_SHARD', 'HYBRID_SHARD',
                              '_HYBRID_SHARD_ZERO2'),
        'data_parallel_replicate_degree': int,
        'data_parallel_shard_degree': int,
        'mixed_precision': ('FULL', 'DEFAULT', 'PURE'),
        'backward_prefetch': ('NONE', 'BACKWARD_PRE', 'BACKWARD_POST'),
        'forward_prefetch': bool,
        'limit_all_gathers': bool,
        'activation_checkpointing': bool,
        'activation_checkpointing_reentrant': bool,
        'activation_cpu_offload': bool,
        'sync_module_states': bool,
        'use_orig_params': bool,
        'state_dict_type': ('full', 'sharded'),
    },
}

# nanotron of 2026-04-07: config/parallelism_config.py, config/config.py
NANOTRON = {
    'parallelism': {'dp': int, 'pp': int, 'tp': int, 'pp_engine': ('1f1b', 'afab'),
                    'tp_mode': ('ALL_REDUCE', 'REDUCE_SCATTER'),
                    'tp_linear_async_communication': bool, 'tp_recompute_allgather': bool,
                    'recompute_layer': bool, 'expert_parallel_size': int},
    'model': {'dtype': ('bfloat16', 'float16', 'float32')},
    'optimizer': {'zero_stage': int, 'accumulate_grad_in_fp32': bool, 'clip_grad': (float, NONE),
                  'weight_decay': float,
                  'optimizer_factory': {'name': ('adamW',), 'torch_adam_is_fused': bool,
                                        'adam_beta1': float, 'adam_beta2': float,
                                        'adam_eps': float}},
    'tokens': {'micro_batch_size': int, 'batch_accumulation_per_replica': int,
               'sequence_length': int},
}

SCHEDULES = ('1F1B', 'GPipe', 'Interleaved1F1B', 'InterleavedZeroBubble', 'ZBVZeroBubble',
             'DualPipeV')
# torchtitan 0.3.0: config/configs.py, components/optimizer; flags are the same names
TITAN = {
    'parallelism.data_parallel_replicate_degree': int,
    'parallelism.data_parallel_shard_degree': int,
    'parallelism.fsdp_reshard_after_forward': ('default', 'always', 'never'),
    'parallelism.tensor_parallel_degree': int,
    'parallelism.pipeline_parallel_degree': int,
    'parallelism.pipeline_parallel_schedule': SCHEDULES,
    'parallelism.pipeline_parallel_microbatch_size': int,
    'parallelism.pipeline_parallel_layers_per_stage': int,
    'parallelism.pipeline_parallel_first_stage_less_layers': int,
    'parallelism.pipeline_parallel_last_stage_less_layers': int,
    'parallelism.context_parallel_degree': int,
    'parallelism.expert_parallel_degree': int,
    'training.local_batch_size': int,
    'training.global_batch_size': int,
    'training.seq_len': int,
    'training.max_norm': float,
    'training.dtype': DTYPE,
    'training.mixed_precision_param': DTYPE,
    'training.mixed_precision_reduce': ('float32',),
    'training.enable_cpu_offload': bool,
    'optimizer.implementation': ('for-loop', 'foreach', 'fused'),
    'compile.enable': bool,
}
# torchtitan before 2026-02-23 (9810191bb^): config/job_config.py
TITAN_TOML = {
    'model': {'name': str, 'flavor': str},
    'training': {'local_batch_size': int, 'global_batch_size': int, 'seq_len': int,
                 'max_norm': float, 'dtype': DTYPE, 'mixed_precision_param': DTYPE,
                 'mixed_precision_reduce': ('float32',), 'enable_cpu_offload': bool},
    'optimizer': {'name': ('AdamW', 'Adam'),
                  'implementation': ('for-loop', 'foreach', 'fused')},
    'parallelism': {'data_parallel_replicate_degree': int, 'data_parallel_shard_degree': int,
                    'fsdp_reshard_after_forward': ('default', 'always', 'never'),
                    'tensor_parallel_degree': int, 'pipeline_parallel_degree': int,
                    'pipeline_parallel_schedule': SCHEDULES,
                    'pipeline_parallel_microbatch_size': int,
                    'pipeline_parallel_layers_per_stage': int,
                    'pipeline_parallel_first_stage_less_layers': int,
                    'pipeline_parallel_last_stage_less_layers': int,
                    'context_parallel_degree': int, 'expert_parallel_degree': int,
                    'context_parallel_rotate_method': ('allgather', 'alltoall')},
    'activation_checkpoint': {'mode': ('selective', 'full', 'memory_budget', 'none'),
                              'selective_ac_option': str},
    'compile': {'enable': bool},
}

# Megatron-LM of 2026-08-22: training/arguments.py and its configuration classes; bool: a switch
MEGATRON = {
    'num-layers': int, 'hidden-size': int, 'ffn-hidden-size': int, 'num-attention-heads': int,
    'kv-channels': int, 'group-query-attention': bool, 'num-query-groups': int,
    'max-position-embeddings': int, 'vocab-size': int,
    'position-embedding-type': ('learned_absolute', 'rope', 'none'), 'rotary-base': int,
    'normalization': ('LayerNorm', 'RMSNorm'), 'swiglu': bool, 'disable-bias-linear': bool,
    'qk-layernorm': bool, 'untie-embeddings-and-output-weights': bool,
    'seq-length': int, 'micro-batch-size': int, 'global-batch-size': int, 'clip-grad': float,
    'optimizer': ('adam', 'sgd'), 'attention-backend': ('flash', 'fused', 'unfused', 'local', 'auto'),
    'bf16': bool, 'fp16': bool, 'recompute-granularity': ('full', 'selective'),
    'recompute-method': ('uniform', 'block'), 'recompute-num-layers': int,
    'tensor-model-parallel-size': int, 'pipeline-model-parallel-size': int,
    'use-distributed-optimizer': bool, 'overlap-grad-reduce': bool, 'overlap-param-gather': bool,
    'grad-reduce-in-bf16': bool, 'use-megatron-fsdp': bool,
    'data-parallel-sharding-strategy': ('no_shard', 'optim', 'optim_grads', 'optim_grads_params'),
    'num-distributed-optimizer-instances': int,
    'outer-dp-sharding-strategy': ('no_shard', 'optim'),
    'megatron-fsdp-main-params-dtype': ('fp32', 'bf16', 'fp16', 'auto'),
    'megatron-fsdp-main-grads-dtype': ('fp32', 'bf16', 'fp16', 'auto'),
    'megatron-fsdp-grad-comm-dtype': ('fp32', 'fp16', 'bf16', 'auto'),
    'no-gradient-accumulation-fusion': bool, 'init-model-with-meta-device': bool,
    'ckpt-format': ('torch', 'torch_dist', 'torch_dcp', 'fsdp_dtensor'), 'use-torch-fsdp2': bool,
    'torch-fsdp2-no-reshard-after-forward': bool, 'sequence-parallel': bool,
    'context-parallel-size': int, 'cp-comm-type': ('p2p', 'all_gather', 'a2a'),
    'num-virtual-stages-per-pipeline-rank': int,
    'attention-dropout': float, 'hidden-dropout': float, 'cross-entropy-loss-fusion': bool,
    'cross-entropy-fusion-impl': ('native', 'te'), 'accumulate-allreduce-grads-in-fp32': bool,
}

# Megatron-Bridge 0.3.1: training/config.py, models/gpt_provider.py; Megatron-Core 0.16.1:
# transformer/transformer_config.py, model_parallel_config.py, optimizer/optimizer_config.py,
# distributed/distributed_data_parallel_config.py
BRIDGE = {
    'model': {
        'seq_length': int, 'tensor_model_parallel_size': int, 'sequence_parallel': bool,
        'pipeline_model_parallel_size': int, 'virtual_pipeline_model_parallel_size': (int, NONE),
        'context_parallel_size': int, 'cp_comm_type': ('p2p', 'all_gather', 'a2a'),
        'recompute_granularity': ('full', 'selective', NONE),
        'recompute_method': ('uniform', 'block', NONE), 'recompute_num_layers': (int, NONE),
        'cross_entropy_loss_fusion': bool, 'cross_entropy_fusion_impl': ('native', 'te'),
        'attention_dropout': float, 'hidden_dropout': float,
    },
    'train': {'micro_batch_size': int, 'global_batch_size': int},
    'optimizer': {'optimizer': ('adam', 'sgd'), 'clip_grad': float,
                  'use_distributed_optimizer': bool},
    'ddp': {'use_distributed_optimizer': bool, 'num_distributed_optimizer_instances': int,
            'overlap_grad_reduce': bool, 'overlap_param_gather': bool},
    'mixed_precision': ('bf16_mixed', 'fp16_mixed', NONE),
}
