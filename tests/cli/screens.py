"""The first screen of `plan`: 24 lines of 100 columns, for a dozen questions as they are asked, compared
with golden/screens.txt.

    screens.py BINARY           compares
    screens.py BINARY --update  writes the golden file anew (read the difference!)
"""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

import support

LINES, COLUMNS = 24, 100
NARROW = 64
LEAST = 80  # columns of a terminal that no table is wider than

QUESTIONS = [
    'gpt2-124m dgx-a100-80gb --gpus 1',
    'gpt2-nano local --gpus 2 --global-batch 8',
    'llama-2-7b 2xdgx-a100-80gb',
    'llama-3.1-8b 2xdgx-h100 --seq-len 8192 --global-batch 128',
    'llama-2-7b 2xdgx-a100-80gb --for deepspeed',
    'llama-2-7b rtx4090-8x --global-batch 32',
    'llama-3-8b dgx-h100 --trainable lora:16',
    'llama-2-13b 4xdgx-a100-40gb --strategy HYBRID_SHARD --headroom 4GiB',
    'llama-2-70b 2xdgx-a100-80gb',
    'llama-3-70b dgx-a100-40gb',
    # The step has retries of the allocator in it.
    'mixtral-8x7b 4xdgx-a100-80gb --runtime deepspeed',
    'llama-3-405b 64xdgx-h100',
    'llama-3-405b 256xdgx-h100 --seq-len 8192 --global-batch 2048',
    'llama-3-70b 8xdgx-b200 --runtime megatron --fp8 nvfp4 --seq-len 8192 --global-batch 512',
]


# Longer than a screen, and no wider.
OTHERS = [
    'predict deepseek-v3 32xdgx-h100 --pipeline 16 --expert 16 --grad-accum 32 --runtime megatron',
    'plan llama-3-8b dgx-h100 --find max-micro-batch',
    'plan llama-3-8b dgx-h100 --find scaling',
    'plan gpt2-124m dgx-h100 --find min-gpus --strategy HYBRID_SHARD',
    'plan llama-2-7b 2xdgx-a100-80gb --explain',
    'export --list',
]


def too_large(screen, lines=LINES, columns=COLUMNS):
    """What a screen of this size does not hold."""
    rows = screen.rstrip('\n').split('\n')
    wide = [f'{len(row)} columns: {row}' for row in rows if len(row) > columns]
    return wide + ([f'{len(rows)} lines'] if len(rows) > lines else [])


def on_terminal(box, columns, *words):
    """What is printed on a terminal of that width."""
    leader, follower = support.open_terminal()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    with subprocess.Popen([box.binary, *words], stdout=follower, stderr=subprocess.DEVNULL,
                          stdin=subprocess.DEVNULL, cwd=box.folder,
                          env={'HOME': box.folder, 'LC_ALL': 'C', 'NO_COLOR': '1'}) as process:
        os.close(follower)
        out = b''
        try:
            while part := os.read(leader, 65536):
                out += part
        except OSError:
            pass
        process.wait()
    os.close(leader)
    return out.decode().replace('\r\n', '\n')


def levers(screen):
    """The lines of `Levers`."""
    rest = screen.partition('\nLevers ')[2]
    return re.split(r'\n\w', rest)[0].strip().split('\n')


def check_compared(box, expect):
    """Beside a plan of the user's, the best one has the levers that it has alone."""
    question = [*QUESTIONS[2].split(), '--global-batch', '64']
    alone = levers(box.run('plan', *question, '-o', 'plan.yaml').out)
    beside = levers(box.run('plan', '--compare', 'plan.yaml').out)
    expect(len(alone) > 2 and alone == beside, f'levers {alone}, beside a plan {beside}')
    freed = box.run('plan', '--compare', 'plan.yaml', '--free', 'compile').out
    expect('torch.compile' in freed.partition('\nUse ')[0], f'--compare --free compile: {freed}')
    box.run('predict', *question, '--loss', 'fused-linear', '-o', 'plan.yaml')
    kept = box.run('plan', '--compare', 'plan.yaml').out
    expect('fused-linear loss' in kept.partition('\nUse ')[0], f"the plan's own loss: {kept}")


def check_labels(box, expect):
    """Where long rows leave a line to levers, it has their label. Who has named a target is not told to."""
    screen = box.run('plan', 'llama-3.1-8b', 'dgx-h100', '--for', 'nanotron', '--global-batch', '64').out
    expect('\nExports  nanotron says it unchanged\n' in screen, f'exports: {screen}')
    screen = box.run('plan', 'gpt-oss-120b', '8xdgx-h100', '--global-batch', '1024').out
    rows = re.findall(r'\n +--runtime megatron: ', screen)
    expect('--runtime megatron: ' in screen and (not rows or '\nLevers ' in screen), f'labels: {screen}')


def check_names(box, expect):
    """Rows name what they differ in as one types it; tensor ranks split sequences unsaid."""
    rows = box.run('plan', 'llama-3-70b', '4xdgx-h100', '--explain').out.split('Why not')[0]
    rows = ' '.join(rows.split())
    expect('TP 4 x' in rows and 'prefetch on' in rows and 'sequence parallel' not in rows and
           'prefetch true' not in rows, f'names: {rows}')


def check_front(box, expect):
    """--pareto shows its plans below the screen, without --explain too."""
    shown = box.run('plan', 'llama-3-8b', 'dgx-h100', '--global-batch', '64', '--pareto').out
    expect(re.search(r'\nMore .*\n\nNo plan beats these', shown), f'--pareto: {shown}')


def main(binary, update):
    expect = support.Expectations()
    expect(too_large('x' * (COLUMNS + 1)) and too_large('x\n' * (LINES + 1)) and
           not too_large(('x' * COLUMNS + '\n') * LINES), 'too_large sees what is too large')
    found = ''
    with support.Sandbox(binary) as box:
        for question in QUESTIONS:
            done = box.run('plan', *question.split())
            expect(done.code in (0, 1), f'{question}: exit code {done.code}: {done.err}')
            for problem in too_large(done.out):
                expect(False, f'{question}: {problem}')
            if ' local ' not in question:  # which is another machine elsewhere
                found += f'$ shardplan plan {question}\n{done.out}\n'
        check_compared(box, expect)
        check_front(box, expect)
        check_labels(box, expect)
        check_names(box, expect)
        narrow = on_terminal(box, NARROW, 'plan', *QUESTIONS[2].split())
        expect(narrow.split() == box.run('plan', *QUESTIONS[2].split()).out.split(),
               f'a narrow terminal shows the same words, got:\n{narrow}')
        shown = [('narrow', narrow, NARROW)]
        for words in OTHERS:
            shown.append((words, box.run(*words.split()).out, COLUMNS))
            shown.append((words, on_terminal(box, LEAST, *words.split()), LEAST))
        for what, screen, columns in shown:
            for problem in too_large(screen, 1000, columns):
                expect(False, f'{what}: {problem}')
    expect.golden('screens', found, update)
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], '--update' in sys.argv))
