"""Fails when a folder is too full, a room lacks its README or its face, a file repeats the name of
its room, or a meson.build lists other sources than the folder holds.

    rooms.py ROOT         checks the tree
    rooms.py --self-test  plants violations in a small tree and fails unless each is found
"""

import os
import re
import sys
import tempfile

import sources

FILES = 45
CODE = ('.c', '.h', '.cu', '.cuh', '.cpp', '.inc', '.py')
QUOTED = re.compile(r"'([^'\n]+)'")

# Variants of one table of kernels: they are reached through that table, not through a face.
WITHOUT_FACE = {'cli', 'kernels/cpu'}


def too_full(root):
    """Folders of more files than a reader takes in at once. Pure data may be as long as it is."""
    held = {}
    for path in sources.files(root, ['']):
        held.setdefault(os.path.dirname(path), []).append(path)
    for folder, paths in sorted(held.items()):
        if len(paths) > FILES and any(path.endswith(CODE) for path in paths):
            yield f'{folder}: {len(paths)} files, at most {FILES}'


def missing_files(root):
    """A room has a README and a face; a folder has a meson.build besides."""
    for room in sources.rooms(root):
        names = os.listdir(os.path.join(root, room))
        if 'README.md' not in names:
            yield f'{room}/README.md is missing'
        if os.sep not in room and 'meson.build' not in names:
            yield f'{room}/meson.build is missing'
        if room not in WITHOUT_FACE and not sources.face(root, room):
            yield f'{room} has no header named after it'


def repeated_names(root):
    """`checkpoints/checkpoint_read.c` says its room twice: `checkpoints/read.c`."""
    for path in sources.files(root, CODE, sources.FOLDERS):
        *rooms, name = path.split(os.sep)
        stem = os.path.splitext(name)[0]
        for room in rooms:
            for word in {room, sources.singular(room)}:
                if stem.startswith(word + '_') or stem.endswith('_' + word):
                    yield f'{path} repeats the name of {room}/'
                    break


def listed(path, quoted):
    """Whether a path stands in a meson.build, which may name tests without test_ and .c."""
    stem = os.path.splitext(path)[0]
    return bool({path, stem, re.sub(r'(^|/)test_', r'\1', stem)} & quoted)


def sources_of_meson(root):
    """The sources of a folder are those that its meson.build lists, rooms and all."""
    built = [os.path.dirname(path) for path in sources.files(root, ['meson.build'])]
    for path in sources.files(root, ['.c'], sources.FOLDERS + ['tests', 'bench']):
        folder = os.path.dirname(path)
        while folder and folder not in built:
            folder = os.path.dirname(folder)
        quoted = set(QUOTED.findall(sources.text(root, os.path.join(folder, 'meson.build'))))
        if not listed(os.path.relpath(path, folder or '.'), quoted):
            yield f'{path} is not in {folder}/meson.build'


def check(root):
    return [problem for judge in (too_full, missing_files, repeated_names, sources_of_meson)
            for problem in judge(root)]


HOUSE = {'base/meson.build': "'base.c', 'text/text.c', 'text/units.c'\n", 'base/README.md': '',
         'base/base.h': '', 'base/base.c': '', 'base/text/README.md': '', 'base/text/text.h': '',
         'base/text/text.c': '', 'base/text/units.c': '',
         'tests/meson.build': "'units'", 'tests/test_units.c': '',
         **{f'data/{n}.yaml': '' for n in range(46)}}
PLANTED = [
    ({f'base/f{n}.h': '' for n in range(42)}, 'base: 46 files, at most 45'),
    ({'base/text/README.md': None}, 'base/text/README.md is missing'),
    ({'base/text/text.h': None}, 'base/text has no header named after it'),
    ({'base/text/text_lines.h': ''}, 'base/text/text_lines.h repeats the name of text/'),
    ({'base/text/base_lines.h': ''}, 'base/text/base_lines.h repeats the name of base/'),
    ({'base/text/forgotten.c': ''}, 'base/text/forgotten.c is not in base/meson.build'),
    ({'tests/test_forgotten.c': ''}, 'tests/test_forgotten.c is not in tests/meson.build'),
    ({}, None),
]


def self_test():
    failures = []
    for change, expected in PLANTED:
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**HOUSE, **change}.items():
                if text is not None:
                    os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                    with open(os.path.join(root, path), 'w', encoding='utf-8') as stream:
                        stream.write(text)
            found = check(root)
        if found if expected is None else len(found) != 1 or expected not in found[0]:
            failures.append(f'planted {sorted(change)}: expected "{expected}", got {found}')
    return failures


if __name__ == '__main__':
    bad = self_test() if sys.argv[1] == '--self-test' else check(sys.argv[1])
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
