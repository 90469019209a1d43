"""Runs the built program in an empty folder, with an environment of its own."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def content(path):
    with open(path, encoding='utf-8') as stream:
        return stream.read()


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    def messages(self):
        """Of stderr, without notes."""
        return [line for line in self.err.split('\n') if line and not line.startswith('note: ')]


class Sandbox:
    """A folder with copies of data/; use as `with Sandbox(binary) as box`."""

    def __init__(self, binary):
        self.binary = os.path.abspath(binary)

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix='shardplan-')
        for name in os.listdir(os.path.join(HERE, 'data')):
            shutil.copy(os.path.join(HERE, 'data', name), self.folder)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding='utf-8') as stream:
            return stream.read()

    def write(self, name, content):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        mode = 'wb' if isinstance(content, bytes) else 'w'
        with open(self.path(name), mode) as stream:
            stream.write(content)

    def plan_small(self):
        """A text, and p.yaml: a plan of two ranks that train a tiny model on it."""
        self.write_text('text.txt')
        self.run('plan', 'gpt2-nano', 'local', '--gpus', '2', '--seq-len', '16', '--global-batch', '2',
                 '--strategy', 'FULL_SHARD', '-o', 'p.yaml')

    def write_text(self, name, length=40000):
        """The beginning of the text that ships with the repository, to train on."""
        with open(os.path.join(ROOT, 'data', 'paradise-lost.txt'), 'rb') as stream:
            self.write(name, stream.read(length))

    def run(self, *words, stdin='', text=True, stdout=subprocess.PIPE, limit=120, **environment):
        env = {'PATH': os.environ['PATH'], 'HOME': self.folder, 'LC_ALL': 'C',
               'XDG_CACHE_HOME': self.path('cache')}
        env.update({k: v for k, v in os.environ.items() if k.endswith('SAN_OPTIONS')})
        env.update(environment)
        return Result(subprocess.run([self.binary] + list(words), cwd=self.folder, text=text,
                                     env=env, input=stdin if text else stdin.encode(),
                                     stdout=stdout, stderr=subprocess.PIPE, timeout=limit))


def open_terminal():
    """(leader, follower) of a pseudo-terminal; where there is none, the test is skipped."""
    try:
        return os.openpty()
    except OSError as error:
        raise unittest.SkipTest(f'no pseudo-terminal here: {error}') from error


class Expectations:
    """Called with what should hold, it notes what to say if that does not."""

    def __init__(self):
        self.problems = []

    def __call__(self, condition, what):
        if not condition:
            self.problems.append(what)

    def golden(self, name, found, update):
        """`found` is what golden/NAME.txt holds; `update` writes it there."""
        path = os.path.join(HERE, 'golden', f'{name}.txt')
        if update:
            with open(path, 'w', encoding='utf-8') as stream:
                stream.write(found)
        self(found == content(path),
             f'differs from golden/{name}.txt; tests/cli/{name}.py BINARY --update')

    def exit_code(self):
        """Prints the problems; the exit code of the test."""
        print('\n'.join(self.problems))
        return 1 if self.problems else 0


def mask(text):
    """What may differ between machines and versions of the schedule."""
    return re.sub(r'\b[0-9a-f]{32}\b', '<digest>', text)
