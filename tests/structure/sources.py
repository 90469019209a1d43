"""The source tree as the structure tests see it: folders in dependency order, and their files."""

import os

FOLDERS = ['base', 'models', 'topologies', 'schedule', 'simulator', 'planner', 'kernels',
           'executor', 'reports', 'cli']

# The folders that use no file, process, thread, clock, locale or environment: text in, text out.
PURE = ['base', 'models', 'topologies', 'schedule', 'simulator', 'planner', 'reports']

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
    'cli': [folder for folder in FOLDERS if folder != 'cli'],
}

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
