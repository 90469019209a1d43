"""Exported files through the framework's own parser: accept.py TARGET RANKS FILE...

Run by the environment's Python. Prints a line a file: what the framework understood, as JSON, or
"refused" and why. What asks for a GPU is told that there is one."""

import json
import os
import sys


def launched(words):
    import torch
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import FullyShardedDataParallelPlugin, dataclasses
    from accelerate.utils.launch import prepare_multi_gpu_env

    args, _, _ = _validate_launch_command(launch_command_parser().parse_args([*words, 'train.py']))
    if args.use_deepspeed:
        return {'zero_stage': args.zero_stage, 'clip': args.gradient_clipping}
    os.environ.update(prepare_multi_gpu_env(args))
    dataclasses.is_cuda_available = lambda: True
    torch.cuda.current_device = lambda: 0
    if not args.use_fsdp:
        return {'strategy': 'NO_SHARD'}
    plugin = FullyShardedDataParallelPlugin()
    return {'reshard': plugin.reshard_after_forward} if plugin.fsdp_version == 2 else {
        'strategy': plugin.sharding_strategy.name}


def accelerate(path, _):
    return launched(['--config_file', path, '--main_process_port', '29511'])


def started(path):
    """The words of the file's start line, on the first of its nodes."""
    with open(path) as file:
        line = next(line for line in file if line.startswith('# Start: '))
    return line.replace('$NODE_RANK', '0').replace('$MASTER_ADDR', '127.0.0.1').split()[2:]


def trl(path, _):
    from trl import SFTConfig, TrlParser
    from trl.cli.accelerate_config import resolve_accelerate_config_argument

    words = [path if word == os.path.basename(path) else word for word in started(path)]
    config, rest = TrlParser((SFTConfig,)).parse_args_and_config(
        [*words[2:], '--output_dir', 'trained', '--bf16', 'false'], return_remaining_strings=True)
    return {**launched(resolve_accelerate_config_argument(rest)), 'clip': config.max_grad_norm,
            'length': config.max_length, 'batch': config.per_device_train_batch_size}


def trainer(path, _):
    from transformers import HfArgumentParser, TrainingArguments, training_args

    training_args.is_torch_bf16_gpu_available = lambda: True
    arguments, = HfArgumentParser(TrainingArguments).parse_json_file(path)
    return {'clip': arguments.max_grad_norm, 'fsdp': arguments.fsdp_config}


def deepspeed(path, ranks):
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig

    comm.get_world_size = lambda group=None: ranks
    comm.is_initialized = lambda: True
    comm.get_rank = lambda group=None: 0
    config = DeepSpeedConfig(path)
    return {'stage': config.zero_config.stage, 'clip': config.gradient_clipping}


def axolotl(path, _):
    import yaml
    from axolotl.utils.schemas.config import AxolotlInputConfig

    with open(path) as file:
        config = AxolotlInputConfig(**yaml.safe_load(file), datasets=[{'path': 'x', 'type': 'alpaca'}],
                                    learning_rate=1e-4)
    return {'clip': config.max_grad_norm, 'version': config.fsdp_version}


def titan(words):
    from torchtitan.config import ConfigManager

    config = ConfigManager().parse_args(words)
    return {'clip': config.training.max_norm, 'batch': config.training.local_batch_size,
            'reshard': config.parallelism.fsdp_reshard_after_forward,
            'ranks': config.parallelism.data_parallel_replicate_degree *
                     config.parallelism.data_parallel_shard_degree *
                     config.parallelism.tensor_parallel_degree}


def torchtitan(path, _):
    sys.path.insert(0, os.path.dirname(path))
    return titan(['--module', os.path.basename(path)[:-3], '--config', 'plan'])


def torchtitan_flags(path, _):
    start = ' '.join(started(path))
    chosen = start.partition('torchtitan.train ')[2].partition(' $(')[0]  # --module and --config
    with open(path) as file:
        words = [word for line in file if line[0] != '#' for word in line.split()]
    return titan([*chosen.split(), *words])


def torchtitan_toml(path, _):
    return titan(['--job.config_file', path])


PARSERS = {
    'accelerate': accelerate, 'accelerate-fsdp1': accelerate, 'trl': trl,
    'accelerate-deepspeed': accelerate, 'hf-trainer': trainer, 'hf-trainer-fsdp1': trainer,
    'deepspeed': deepspeed, 'axolotl': axolotl, 'torchtitan': torchtitan,
    'torchtitan-flags': torchtitan_flags, 'torchtitan-toml': torchtitan_toml,
}


def main():
    target, ranks, *paths = sys.argv[1:]
    before = dict(os.environ)
    for path in paths:
        os.environ.clear()
        os.environ.update(before)
        try:
            print('understood', json.dumps(PARSERS[target](path, int(ranks)), default=str))
        except (Exception, SystemExit) as error:  # whatever the parser raises
            print('refused', type(error).__name__, str(error).replace('\n', ' ')[:200])


main()
