"""Compiles the CUDA kernels to one fatbin and writes the C file that holds it.

    embed.py NVCC ARCHITECTURES SOURCE INCLUDE FATBIN C_FILE DEPFILE

ARCHITECTURES: "80,90,100" gives machine code for each, and PTX of the first for what comes later.
What the assembler says of each kernel (registers, spills) goes to FATBIN.log, for the tests.
"""

import re
import subprocess
import sys

TEMPLATE = '''#include "kernels/cuda/api.h"

/* The assembler reads the file itself: as an array of C it would take the compiler seconds. */
__asm__(".section .rodata\\n"
    ".balign 64\\n"
    ".globl cuda_image\\n"
    "cuda_image:\\n"
    ".incbin \\"{path}\\"\\n"
    "cuda_image_end:\\n"
    ".byte 0\\n"
    ".balign 8\\n"
    ".globl cuda_image_bytes\\n"
    "cuda_image_bytes:\\n"
    ".quad cuda_image_end - cuda_image\\n"
    ".previous\\n");

const char *const cuda_image_compiler = "nvcc {version}";
'''

ABOUT_KERNELS = re.compile(r'ptxas info  |    \d+ bytes stack frame')


def version(nvcc):
    said = subprocess.run([nvcc, '--version'], check=True, capture_output=True, text=True).stdout
    return said.split('release ')[1].split(',')[0] if 'release ' in said else 'unknown'


def own(arch):
    """Hopper's machine code with what no other architecture has: attention_hopper.cuh."""
    return '90a' if arch == '90' else arch


def main(nvcc, architectures, source, include, fatbin, c_file, depfile):
    archs = architectures.split(',')
    targets = [f'-gencode=arch=compute_{a},code=sm_{a}' for a in map(own, archs)]
    targets.append(f'-gencode=arch=compute_{archs[0]},code=compute_{archs[0]}')
    # No contraction: an element gets the same bits in a vector body and in its tail.
    command = [nvcc, '-std=c++17', '-O3', '--fmad=false', '-fatbin', '-I', include, '-o', fatbin,
               '-MD', '-MF', depfile, '-Werror', 'all-warnings', '-Xptxas', '-v',
               '--threads', '2', '-Xfatbin', '-compress-all'] + targets
    done = subprocess.run(command + [source], stderr=subprocess.PIPE, text=True)
    said = done.stderr.splitlines(keepends=True)
    sys.stderr.writelines(line for line in said if not ABOUT_KERNELS.match(line))
    if done.returncode:
        return 1
    with open(fatbin + '.log', 'w', encoding='utf-8') as out:
        out.write(done.stderr)
    with open(c_file, 'w', encoding='utf-8') as out:
        out.write(TEMPLATE.format(path=fatbin, version=version(nvcc)))
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
