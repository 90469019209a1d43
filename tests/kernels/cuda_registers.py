"""Judges what ptxas says of the CUDA kernels: a kernel that spills registers is slow in a way that no
other test sees.

    cuda_registers.py LIST LOG     LIST: kernels/cuda/list.h, LOG: the build's cuda.fatbin.log
    cuda_registers.py --self-test
"""

import re
import sys

# Around the call that a division of odd numbers takes, once a row or once a step.
MAY_SPILL = {'clip_scale': 32, 'rmsnorm_backward_bf16': 8}


def kernels(log):
    """{(kernel, architecture): (registers, bytes spilled)}"""
    found = {}
    pattern = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'.*?"
                         r'(\d+) bytes spill stores, (\d+) bytes spill loads.*?'
                         r'Used (\d+) registers', re.S)
    for name, arch, stored, loaded, registers in pattern.findall(log):
        found[name, arch] = int(registers), max(int(stored), int(loaded))
    return found


def expected(text):
    """The names of list.h."""
    names = set(re.findall(r'\bX\((\w+), \w+_launch', text))
    names |= {name + end for name in re.findall(r'CUDA_BOTH\(X, (\w+),', text)
              for end in ('_fp32', '_bf16')}
    names |= {f'{name}_{a}_{b}' for name in re.findall(r'CUDA_PAIRS\(X, (\w+),', text)
              for a in ('fp32', 'bf16') for b in ('fp32', 'bf16')}
    return {name for name in names if not name.startswith('name')}


def check(names, log):
    found = kernels(log)
    archs = sorted({arch for _, arch in found})
    problems = [] if archs else ['the log names no kernel']
    problems += [f'{name} is not in the image for {arch}' for arch in archs
                 for name in sorted(names) if (name, arch) not in found]
    problems += [f'{name} spills {spilled} bytes of registers on {arch}'
                 for (name, arch), (_, spilled) in sorted(found.items())
                 if spilled > MAY_SPILL.get(name, 0)]
    for name in sorted({name for name, _ in found}):
        row = '  '.join(f'{arch} {found[name, arch][0]:3}' for arch in archs
                        if (name, arch) in found)
        print(f'{name:32} registers: {row}')
    return problems


SAMPLE = """ptxas info    : Compiling entry function 'add_fp32' for 'sm_90'
ptxas info    : Function properties for add_fp32
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 17 registers, used 0 barriers
"""


def self_test():
    spilled = SAMPLE.replace('0 bytes spill stores', '8 bytes spill stores')
    text = 'CUDA_BOTH(X, add, flat_launch, 256)'
    both = SAMPLE + SAMPLE.replace('fp32', 'bf16')
    wrong = []
    if check(expected(text), both):
        wrong.append('a good log was refused')
    if len(check(expected(text), SAMPLE)) != 1:
        wrong.append('a kernel that is missing was not seen')
    if len(check(expected(text), SAMPLE + spilled.replace('fp32', 'bf16'))) != 1:
        wrong.append('a kernel that spills was not seen')
    if len(check(expected(text), '')) != 1:
        wrong.append('an empty log was accepted')
    return wrong


if __name__ == '__main__':
    if sys.argv[1] == '--self-test':
        bad = self_test()
    else:
        with open(sys.argv[1], encoding='utf-8') as a, open(sys.argv[2], encoding='utf-8') as b:
            bad = check(expected(a.read()), b.read())
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
