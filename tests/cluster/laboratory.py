#!/usr/bin/env python3
"""Sweeps of plans over links where communication decides: predicted first, trained once, compared.

    laboratory.py SHARDPLAN RELAY TEXT SEED FOLDER [--links N] [--questions N] [--plans N] [--mpi]
                  [--only predict|measure]

SEED draws links (rate, latency, loss), questions (model, sequence, micro-batch, accumulation) and for each question plans
(strategy, wrap, prefetch, rate limiter, ...), beside the one that `plan` chooses. Each link is calibrated once over two
nodes, as a user does; all is predicted and written to FOLDER/predictions.json before anything is trained. Then each
plan is trained for a moment on its link and the median step is written to FOLDER/measurements.jsonl; a run that
was interrupted goes on. Compute is held to its prediction and not carried out: links are what is judged. `verdict.py`
reads FOLDER."""
import argparse
import json
import os
import random
import subprocess
import sys
import time

import network
import runs

WARM_UP, LEAST_STEPS, MOST_STEPS, SECONDS = 2, 3, 16, 1.2
# Where frames are lost no step is like the other.
MORE_STEPS = 3
# Steps are drawn that are long beside what a shared machine adds, and short enough for many.
SHORTEST, LONGEST, LONGEST_OF_OTHERS = 0.04, 0.3, 0.8

RATES = ('50mbit', '100mbit', '200mbit', '400mbit', '800mbit')
# Seconds, and the share of frames that is lost. Each seed deals them anew, so that all are in ten links.
CABLES = ((0, 0), (0.0001, 0), (0.0003, 0), (0.001, 0), (0.002, 0), (0.004, 0), (0.008, 0), (0.0003, 0.002),
          (0.002, 0.001), (0.004, 0.004))
# Widths of layers: units of 0.2 to 3 MB.
WIDTHS = (64, 96, 128, 192, 256)
STRATEGIES = ('NO_SHARD', 'SHARD_GRAD_OP', 'FULL_SHARD', 'HYBRID_SHARD', 'HYBRID_SHARD_ZERO2', 'ZERO_1', 'ZERO_2', 'ZERO_3')


# --- what is asked ---

class Link:
    def __init__(self, source, cable):
        self.rate = source.choice(RATES)
        self.latency, self.loss = cable

    def __str__(self):
        lost = f', {100 * self.loss:.1f} % lost' if self.loss else ''
        return f'{self.rate}, {1e3 * self.latency:g} ms{lost}'


def draw_model(source):
    family, hidden = source.choice(['gpt2', 'llama']), source.choice(WIDTHS)
    return {'shardplan': 'model/1', 'name': 'drawn', 'family': family, 'layers': source.choice([2, 3, 4, 6, 8]),
            'hidden': hidden, 'heads': hidden // 32, 'ffn': 4 * hidden, 'vocab': 512, 'context': 256}


def draw_work(source):
    accumulate = source.choice([1, 1, 2, 4])
    return ['--seq-len', str(source.choice([32, 64, 128, 256])), '--micro-batch', str(source.choice([1, 2, 4])),
            '--grad-accum', str(accumulate), '--activation-checkpointing', 'none']


def draw_knobs(source, strategy, accumulate):
    words = ['--strategy', strategy, '--wrap', source.choice(['block', 'block', 'blocks:2', 'model'])]
    if strategy != 'NO_SHARD':
        words += ['--prefetch', source.choice(['none', 'pre', 'post']), '--forward-prefetch', source.choice(['on', 'off']),
                  '--limit-all-gathers', source.choice(['on', 'off'])]
    if strategy.startswith('HYBRID'):
        words += ['--shard-group', '2']
    if strategy in ('FULL_SHARD', 'HYBRID_SHARD', 'ZERO_3'):
        words += ['--reshard-after-forward', 'true']
    if accumulate > 1 and not strategy.startswith('ZERO'):
        words += ['--sync-each-micro-batch', source.choice(['on', 'off'])]
    return words


class Laboratory(runs.Bench):
    """runs.Bench with many links, models and plans in its folder."""

    def __init__(self, options):
        os.makedirs(options.folder, exist_ok=True)
        super().__init__(options.shardplan, os.path.abspath(options.folder), os.path.abspath(options.text))
        self.options = options

    def cluster(self, link):
        relay = (os.path.abspath(self.options.relay), link['latency'], link['loss'], self.options.seed)
        kind = network.Cluster if self.options.mpi else Scripted
        return kind(link['rate'], relay=relay if link['latency'] > 0 else ())

    # --- predictions ---

    def ask(self, model, topology, words, name):
        """The prediction of the answer, which becomes a file; None where there is none."""
        try:
            told = self.here('plan', self.path(model), self.path(topology), *words, '--json', '-o', self.path(name))
        except runs.Failed as reason:
            print(f'{name}: {reason}', file=sys.stderr)
            return None
        chosen = json.loads(told)['chosen']
        return {'file': name, 'words': words, 'plan': chosen['plan'], 'step': chosen['prediction']['step_time_s'],
                'digest': chosen['prediction']['schedule_digest']}

    def predict_question(self, source, topology, name):
        """None when its steps are too short or too long."""
        model, work = draw_model(source), draw_work(source)
        accumulate = int(work[work.index('--grad-accum') + 1])
        strategies = list(STRATEGIES) + [source.choice(STRATEGIES) for _ in range(4 * self.options.plans)]
        with open(self.path(f'{name}.model.yaml'), 'w', encoding='ascii') as file:
            file.writelines(f'{key}: {value}\n' for key, value in model.items())
        chosen = self.ask(f'{name}.model.yaml', topology, work, f'{name}.chosen.yaml')
        if not SHORTEST <= chosen['step'] <= LONGEST:
            return None
        plans = {chosen['digest']: chosen}
        for i, strategy in enumerate(strategies):
            if len(plans) > self.options.plans:
                break
            plan = self.ask(f'{name}.model.yaml', topology, work + draw_knobs(source, strategy, accumulate),
                            f'{name}.{i}.yaml')
            if plan is not None and plan['step'] <= LONGEST_OF_OTHERS:
                plans.setdefault(plan['digest'], plan)
        return {'name': name, 'model': model, 'work': work, 'topology': topology, 'plans': list(plans.values())}

    def predict(self):
        source, links, cables = random.Random(self.options.seed), [], []
        for n in range(self.options.links):
            cables = cables or source.sample(CABLES, len(CABLES))
            link, begun = Link(source, cables.pop()), time.monotonic()
            told = {**vars(link), 'text': str(link), 'questions': []}
            with self.cluster(told) as cluster:
                cluster.urgent = True
                self.calibrate(cluster)
            topology = f'link{n}.yaml'
            os.replace(self.path('paced.yaml'), self.path(topology))
            os.replace(self.path('cluster.yaml'), self.path(f'link{n}.cluster.yaml'))
            while len(told['questions']) < self.options.questions:
                question = self.predict_question(source, topology, f'link{n}.question{len(told["questions"])}')
                told['questions'] += [question] if question else []
            links.append(told)
            print(f'link {n}: {link}: {sum(len(q["plans"]) for q in told["questions"])} plans predicted in '
                  f'{time.monotonic() - begun:.0f} s', flush=True)
        with open(self.path('predictions.json'), 'w', encoding='utf-8') as file:
            json.dump({'seed': self.options.seed, 'links': links}, file, indent=1)

    # --- measurements ---

    def read_measured(self):
        """file -> median step."""
        path = self.path('measurements.jsonl')
        if not os.path.exists(path):
            return {}
        with open(path, encoding='utf-8') as file:
            return {line['file']: line for line in map(json.loads, file)}

    def measure_plan(self, cluster, plan, more):
        steps = WARM_UP + more * max(LEAST_STEPS, min(MOST_STEPS, round(SECONDS / plan['step'])))
        measured = plan['file'].replace('.yaml', '.measured.json')
        self.on(cluster, 'train', self.path(plan['file']), '--data', self.text, '--measured', self.path(measured),
                '--device', 'null', '--pace', 'compute', '--steps', str(steps))
        with open(self.path(measured), encoding='utf-8') as file:
            told = json.load(file)['measurement']
        line = {'file': plan['file'], 'step': told['step_time_p50_s'], 'mean': told['step_time_s'], 'steps': steps - WARM_UP,
                'load': os.getloadavg()[0]}
        with open(self.path('measurements.jsonl'), 'a', encoding='utf-8') as file:
            file.write(json.dumps(line) + '\n')
        return line

    def measure(self):
        with open(self.path('predictions.json'), encoding='utf-8') as file:
            links = json.load(file)['links']
        done = self.read_measured()
        for link in links:
            left = [plan for question in link['questions'] for plan in question['plans'] if plan['file'] not in done]
            if not left:
                continue
            with self.cluster(link) as cluster:
                cluster.urgent = True
                for plan in left:
                    line = self.measure_plan(cluster, plan, MORE_STEPS if link['loss'] else 1)
                    print(f'{link["text"]}: {plan["file"]}: {1e3 * plan["step"]:.1f} ms predicted, '
                          f'{1e3 * line["step"]:.1f} measured ({100 * (plan["step"] / line["step"] - 1):+.1f} %)',
                          flush=True)


class Scripted(network.Cluster):
    """Ranks that a script of each node starts: they meet over TCP, without MPI."""
    port = 20000

    def start(self, per_node, command, layout=None):
        ranks, words = per_node * len(self.nodes), quoted(command)
        self.port += 1
        scripts = []
        for node in range(len(self.nodes)):
            here = (f'MASTER_ADDR={self.address(0)} MASTER_PORT={self.port} WORLD_SIZE={ranks} LOCAL_WORLD_SIZE={per_node}')
            lines = [f'{here} RANK={node * per_node + i} LOCAL_RANK={i} {words} & p{i}=$!' for i in range(per_node)]
            lines += [f'wait $p{i} || code=$?' for i in range(per_node)]
            scripts.append(quoted([self.agent, self.address(node), '\n'.join(['code=0', *lines, 'exit $code'])]))
        both = [f'{script} & p{i}=$!' for i, script in enumerate(scripts)]
        both += [f'wait $p{i} || code=$?' for i in range(len(scripts))]
        process = subprocess.Popen(
            ['sh', '-c', '\n'.join(['code=0', *both, 'exit $code'])], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=dict(os.environ, LAB_PRIORITY='chrt --rr 1' if self.urgent else ''), start_new_session=True)
        self.processes.append(process)
        return process


def quoted(words):
    return ' '.join("'" + word.replace("'", "'\\''") + "'" for word in words)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('shardplan')
    parser.add_argument('relay')
    parser.add_argument('text')
    parser.add_argument('seed', type=int, help='of what is drawn: one that was not used before')
    parser.add_argument('folder')
    parser.add_argument('--links', type=int, default=10)
    parser.add_argument('--questions', type=int, default=3, help='for each link')
    parser.add_argument('--plans', type=int, default=7, help='for each question, beside the chosen one')
    parser.add_argument('--mpi', action='store_true', help='ranks are started by mpirun; else they meet over TCP')
    parser.add_argument('--only', choices=['predict', 'measure'])
    return parser.parse_args()


def main():
    options = parse_options()
    try:
        network.require()
    except network.Unavailable as reason:
        print(f'SKIPPED: {reason}')
        return 77
    laboratory = Laboratory(options)
    if options.only != 'measure' and not os.path.exists(laboratory.path('predictions.json')):
        laboratory.predict()
    if options.only != 'predict':
        laboratory.measure()
    return 0


if __name__ == '__main__':
    sys.exit(main())
