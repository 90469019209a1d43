"""The source tree as the structure tests see it: folders in dependency order, and their files."""

import os

FOLDERS = ['base', 'models', 'topologies', 'schedule', 'simulator', 'planner', 'kernels',
           'executor', 'reports', 'frameworks', 'cli']

# The folders that use no file, process, thread, clock, locale or environment: text in, text out.
PURE = ['base', 'models', 'topologies', 'schedule', 'simulator', 'planner', 'reports', 'frameworks']

# Who may include whom, besides itself. The executor never sees planner or simulator, the
# simulator never sees kernels or executor: that is the design.
MAY_INCLUDE = {
    'base': [],
    'models': ['base'],
    'topologies': ['base'],
    'schedule': ['base', 'models', 'topologies'],
    'simulator': ['base', 'models', 'topologies', 'schedule'],
    'planner': ['base', 'models', 'topologies', 'schedule', 'simulator'],
    'kernels': ['base'],
    'executor': ['base', 'models', 'topologies', 'schedule', 'kernels'],
    'reports': ['base', 'models', 'topologies', 'schedule', 'planner/planner.h'],
    'frameworks': ['base', 'models', 'topologies', 'schedule'],
    'cli': [folder for folder in FOLDERS if folder != 'cli'],
}

# Faces that are not named after their room, nor after one of what it holds.
FACES = {'frameworks/readers': 'leaves.h'}

SKIPPED = {'__pycache__', 'subprojects', 'node_modules'}


def files(root, suffixes, folders=None):
    """Paths relative to root with one of the suffixes ('' accepts all), sorted."""
    found = []
    for here, directories, names in os.walk(root):
        relative = os.path.relpath(here, root)
        top = relative.split(os.sep)[0]
        directories[:] = sorted(d for d in directories if d not in SKIPPED and
                                (d == '.ci' or not d.startswith('.')) and
                                not (here == root and d.startswith('build')))
        if folders is not None and top not in folders and relative != '.':
            continue
        if folders is not None and relative == '.':
            continue
        for name in sorted(names):
            if name.endswith(tuple(suffixes)) and not os.path.islink(os.path.join(here, name)):
                found.append(os.path.normpath(os.path.join(relative, name)))
    return found


def text(root, path):
    with open(os.path.join(root, path), encoding='utf-8', newline='') as stream:
        return stream.read()


def singular(name):
    return name[:-3] + 'y' if name.endswith('ies') else name[:-1] if name.endswith('s') else name


def face(root, room):
    """The one header of a room that other rooms may include, or None."""
    name = os.path.basename(room)
    for candidate in [FACES[room]] if room in FACES else [name + '.h', singular(name) + '.h']:
        if os.path.isfile(os.path.join(root, room, candidate)):
            return os.path.join(room, candidate)
    return None


def rooms(root):
    """The folders, at any depth of a product folder, that hold source files."""
    return sorted({os.path.dirname(path) for path in
                   files(root, ['.c', '.h', '.cu', '.cuh'], FOLDERS)})
