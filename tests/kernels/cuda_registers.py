"""Judges what ptxas says of the CUDA kernels: a kernel that spills registers is slow in a way that no
other test sees. Where there is a cuobjdump, looks for the instructions of the tensor cores too.

    cuda_registers.py LIST FATBIN ARCHS   LIST: kernels/cuda/device/device.h; beside FATBIN is FATBIN.log; every
                                          kernel must be there for each of ARCHS ("80,90,100")
    cuda_registers.py --self-test
"""

import re
import shutil
import subprocess
import sys

# Around the call that a division of odd numbers takes, once a row or once a step.
MAY_SPILL = {'clip_scale': 32, 'cross_entropy_bf16': 8}


def kernels(log):
    """{(kernel, architecture): (registers, bytes spilled)}"""
    found = {}
    pattern = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'.*?"
                         r'(\d+) bytes spill stores, (\d+) bytes spill loads.*?'
                         r'Used (\d+) registers', re.S)
    for name, arch, stored, loaded, registers in pattern.findall(log):
        found[name, arch] = int(registers), max(int(stored), int(loaded))
    return found


def machine(arch):
    """As embed.py makes it."""
    return 'sm_90a' if arch == '90' else f'sm_{arch}'


def expected(text):
    """The names of list.h."""
    names = set(re.findall(r'\bX\((\w+), \w+_launch', text))
    names |= {name + end for name in re.findall(r'CUDA_BOTH\(X, (\w+),', text)
              for end in ('_fp32', '_bf16')}
    names |= {f'{name}_{a}_{b}' for name in re.findall(r'CUDA_PAIRS\(X, (\w+),', text)
              for a in ('fp32', 'bf16') for b in ('fp32', 'bf16')}
    return {name for name in names if not name.startswith('name')}


def belongs(name, arch):
    """Hopper's own kernels are in the machine code for Hopper only."""
    return 'hopper' not in name or arch == 'sm_90a'


def check(names, log, wanted):
    found = kernels(log)
    archs = sorted({arch for _, arch in found})
    problems = [] if archs else ['the log names no kernel']
    problems += [f'{arch} is not in the image' for arch in wanted if arch not in archs]
    problems += [f'{name} is not in the image for {arch}' for arch in archs
                 for name in sorted(names) if belongs(name, arch) and (name, arch) not in found]
    problems += [f'{name} is in the image for {arch}, which cannot run it'
                 for name, arch in sorted(found) if not belongs(name, arch)]
    problems += sorted(set(re.findall(r'Potential Performance Loss: .*', log)))
    problems += [f'{name} spills {spilled} bytes of registers on {arch}'
                 for (name, arch), (_, spilled) in sorted(found.items())
                 if spilled > MAY_SPILL.get(name, 0)]
    for name in sorted({name for name, _ in found}):
        row = '  '.join(f'{arch} {found[name, arch][0]:3}' for arch in archs
                        if (name, arch) in found)
        print(f'{name:32} registers: {row}')
    return problems


def instructions(sass):
    """{kernel: set of instructions, without their modifiers} over all architectures."""
    found = {}
    for line in sass.splitlines():
        start = re.match(r'\s*Function : (\w+)', line)
        if start:
            name = start.group(1)
            found.setdefault(name, set())
        match = re.match(r'\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9]+)', line)
        if match and found:
            found[name].add(match.group(1))
    return found


def check_instructions(found):
    tensor = sorted(name for name in found if name.startswith('attention_tensor'))
    problems = [] if tensor else ['no attention kernel of the tensor cores in the machine code']
    for name in tensor:
        problems += [f'{name} has no {what}' for what in ('HMMA', 'LDSM', 'LDGSTS')
                     if what not in found[name]]
    for name in sorted(name for name in found if 'hopper' in name):
        problems += [f'{name} has no {what}' for what in ('HGMMA', 'LDGSTS', 'SYNCS')
                     if what not in found[name]]
        problems += [f'{name} keeps something in local memory: {what}' for what in ('LDL', 'STL')
                     if what in found[name]]
    return problems


def check_machine_code(fatbin):
    program = shutil.which('cuobjdump')
    if not program:
        print('cuobjdump is not here: machine code not looked at')
        return []
    done = subprocess.run([program, '--dump-sass', fatbin], capture_output=True, text=True)
    return check_instructions(instructions(done.stdout))


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
    if check(expected(text), both, ['sm_90']):
        wrong.append('a good log was refused')
    if len(check(expected(text), both, ['sm_80', 'sm_90'])) != 1:
        wrong.append('an architecture that is missing was not seen')
    if len(check(expected(text), SAMPLE, ['sm_90'])) != 1:
        wrong.append('a kernel that is missing was not seen')
    if len(check(expected(text), SAMPLE + spilled.replace('fp32', 'bf16'), [])) != 1:
        wrong.append('a kernel that spills was not seen')
    if len(check(expected(text), '', [])) != 1:
        wrong.append('an empty log was accepted')
    hopper = 'X(attention_hopper_64, attention_launch, 384)'
    for arch, problems in (('sm_80', 1), ('sm_90a', 0)):
        log = SAMPLE.replace('add_fp32', 'attention_hopper_64').replace('sm_90', arch)
        if len(check(expected(hopper), log, [])) != problems:
            wrong.append(f'the kernel of Hopper in {arch} was judged wrongly')
    if len(check(expected(text), both + 'ptxas info : (C7512) Potential Performance Loss: wgmma\n',
                 ['sm_90'])) != 1:
        wrong.append("the assembler's warning was not seen")
    sass = ('\t\tFunction : attention_tensor_64\n'
            '        /*0010*/                   LDSM.16.M88.4 R4, [R2] ;\n'
            '        /*0020*/               @P0 LDGSTS.E.128 [R2], [R4] ;\n')
    if len(check_instructions(instructions(sass))) != 1:
        wrong.append('a kernel without tensor cores was not seen')
    more = '        /*0030*/                   HMMA.16816.F32.BF16 R4, R4, R6, R8 ;\n'
    if check_instructions(instructions(sass + more)):
        wrong.append('good machine code was refused')
    local = ('\t\tFunction : attention_hopper_64\n'
             '        /*0010*/                   HGMMA.64x128x16.F32.BF16 R88, gdesc[UR8], R88 ;\n'
             '        /*0020*/                   LDL R1, [R2] ;\n')
    if len(check_instructions(instructions(sass + more + local))) != 3:
        wrong.append('local memory, or missing instructions of Hopper, were not seen')
    return wrong


if __name__ == '__main__':
    if sys.argv[1] == '--self-test':
        bad = self_test()
    else:
        with open(sys.argv[1], encoding='utf-8') as a, \
                open(sys.argv[2] + '.log', encoding='utf-8') as b:
            bad = check(expected(a.read()), b.read(), [machine(a) for a in sys.argv[3].split(',')])
            bad += check_machine_code(sys.argv[2])
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
