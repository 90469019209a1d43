"""A rank that the system's limits keep from starting says which, in one line; few descriptors are
enough.

    rank_limits.py BINARY
"""

import os
import resource
import subprocess
import sys

import support

TRAIN = ['train', 'p.yaml', '--data', 'text.txt', '--steps', '1']


def run(box, binary, what, most):
    """(code, stderr) of a run under that limit."""
    done = subprocess.run([binary, *TRAIN], cwd=box.path('.'), text=True, capture_output=True,
                          timeout=60, check=False,
                          preexec_fn=lambda: resource.setrlimit(what, (most, most)))
    return done.returncode, done.stderr.strip()


def main(binary):
    expect = support.Expectations()
    with support.Sandbox(binary) as box:
        box.plan_small()
        for most in 32, 100, 101:
            code, err = run(box, binary, resource.RLIMIT_NOFILE, most)
            expect(code == 0, f'{most} descriptors: {code}: {err}')
        # Enough for the launcher, which maps less than a rank does.
        code, err = run(box, binary, resource.RLIMIT_AS, 600 << 20)
        expect(code in (4, 6) and 'Cannot allocate memory' in err and 'left with code' not in err,
               f'little address space: {code}: {err}')
    return expect.exit_code()


if __name__ == '__main__':
    sys.exit(main(os.path.abspath(sys.argv[1])))
