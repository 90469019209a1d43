"""Files with random damage: whatever comes of it, it is an answer or one line, never a crash.

    mutations.py BINARY [RUNS]     a fixed seed; every run names what would repeat it
"""

import os
import random
import sys

import support

# (what is damaged, how it is read)
READERS = [('tiny.yaml', ['models', 'show']), ('config.json', ['models', 'show']),
           ('box.yaml', ['topologies', 'show']), ('plan.yaml', ['explain']),
           ('cases.csv', ['predict', '--cases']), ('measured.json', ['check', 'plan.yaml'])]
PIECES = [b'-1', b'0', b'1e308', b'9223372036854775807', b'"', b'{', b']', b': ', b'\n', b'\xff',
          b'null', b'[]', b'{}', b'\\u0000', b'&a', b'*a', b'  ', b'nan', b'99999999999999999999']


def damaged(content, chance):
    """One to four edits: bytes changed, removed, doubled, replaced by something meaningful."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(content))
        length = chance.choice([0, 1, 1, 4, 40])
        piece = chance.choice([bytes([chance.randrange(256)]), b'', chance.choice(PIECES),
                               content[start:start + length] * 2])
        content = content[:start] + piece + content[start + length:]
    return content


def problem(result):
    messages = result.messages()
    if result.code not in (0, 1, 2, 3):
        return f'exit code {result.code}'
    if result.code == 3 and len(messages) != 1:
        return f'{len(messages)} lines'
    if any(ord(c) < 32 and c != '\n' for c in result.err):
        return 'a control character in the message'
    return None


def main(binary, runs):
    problems, codes = [], {}
    with support.Sandbox(binary) as box:
        question = ['predict', 'tiny.yaml', 'laptop.yaml', '--seq-len', '16', '-o', 'plan.yaml']
        assert box.run(*question).code == 0
        train = box.run('train', 'plan.yaml', '--data', 'tiny.yaml', '--steps', '3')
        assert train.code == 0, train.err
        for seed in range(runs):
            name, words = READERS[seed % len(READERS)]
            with open(box.path(name), 'rb') as stream:
                content = damaged(stream.read(), random.Random(seed))
            box.write('damaged' + os.path.splitext(name)[1], content)
            result = box.run(*words, 'damaged' + os.path.splitext(name)[1])
            codes[result.code] = codes.get(result.code, 0) + 1
            found = problem(result)
            if found:
                problems.append(f'seed {seed}, {name}: {found}: {result.err[:2000]}')
    print(f'{runs} damaged files: exit codes {dict(sorted(codes.items()))}')
    if codes.get(3, 0) < runs / 4 or codes.get(0, 0) == 0:
        problems.append('the damage is no test: too few files were refused, or all')
    return problems


if __name__ == '__main__':
    bad = main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 240)
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
