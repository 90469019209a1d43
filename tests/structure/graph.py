"""Fails when rooms or files hang together in circles, or reach past a room's face.

A room is a folder that holds source files; the files at the root of a product folder are a room of
their own. Two graphs are judged: of calls, from the object files (who defines a symbol, who needs
it), and of includes, from the sources. In both no circle leads from a room back to itself through
another room. Inside one room at most three files call each other in a circle. Other rooms include
a room's face and nothing else of it, and no product file includes anything of tests/.

    graph.py ROOT BUILD NM           checks the tree; BUILD holds compile_commands.json
    graph.py --self-test NM CC...    compiles violations and fails unless each is found
"""

import json
import os
import re
import subprocess
import sys
import tempfile

import sources

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
SYMBOL = re.compile(r'^(.*?):\s*[0-9a-f]*\s+([A-Za-z])\s+(\S+)$', re.MULTILINE)

# The executor counts what is allocated by standing in front of the C library.
REPLACED = {'malloc', 'calloc', 'realloc', 'free'}
FILES_IN_CIRCLE = 3


def circles(graph):
    """The sets of nodes that reach one another, largest first, each as a sorted tuple."""
    reached = {}
    for start in graph:
        seen, todo = set(), [start]
        while todo:
            for node in graph.get(todo.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    todo.append(node)
        reached[start] = seen
    found = {tuple(sorted(other for other in reached[node] if node in reached.get(other, ())))
             for node in graph if node in reached[node]}
    return sorted(found, key=lambda nodes: (-len(nodes), nodes))


def objects(root, build):
    """{object: source} of the product: compiled once or at several levels, tests left out."""
    with open(os.path.join(build, 'compile_commands.json'), encoding='utf-8') as stream:
        commands = json.load(stream)
    found = {}
    for command in commands:
        path = os.path.relpath(os.path.join(command['directory'], command['file']), root)
        if path.split(os.sep)[0] in sources.FOLDERS:
            found[os.path.join(build, command['output'])] = path
    return found


def calls(nm, compiled):
    """{file: {file: a symbol that the first needs and the second defines}}."""
    out = subprocess.run([nm, '-A', '-g'] + sorted(compiled), check=True, text=True,
                         capture_output=True).stdout
    needed, owners = {}, {}
    for match in SYMBOL.finditer(out):
        path, kind, name = compiled[match.group(1)], match.group(2), match.group(3)
        if kind in 'Uwv':
            needed.setdefault(path, set()).add(name)
        elif name not in REPLACED:
            owners.setdefault(name, set()).add(path)
    return {path: {owner: name for name in sorted(names) for owner in owners.get(name, ())
                   if owner != path}
            for path, names in needed.items()}


def includes(root):
    """{file: [files of ours that it includes]}, of product files."""
    return {path: INCLUDE.findall(sources.text(root, path))
            for path in sources.files(root, ['.c', '.h', '.cu', '.cuh', '.inc'], sources.FOLDERS)}


def between_rooms(graph):
    rooms = {}
    for path, others in graph.items():
        room = os.path.dirname(path)
        rooms.setdefault(room, {})
        for other in others:
            if os.path.dirname(other) != room:
                rooms[room].setdefault(os.path.dirname(other), f'{path} -> {other}')
    return rooms


def room_circles(graph, what):
    rooms = between_rooms(graph)
    for circle in circles(rooms):
        steps = [rooms[room][other] for room in circle for other in rooms[room] if other in circle]
        yield f'circle of rooms by {what}: {" ".join(circle)} ({"; ".join(sorted(steps))})'


def file_circles(graph):
    for room in sorted({os.path.dirname(path) for path in graph}):
        inside = {path: {other for other in others if os.path.dirname(other) == room}
                  for path, others in graph.items() if os.path.dirname(path) == room}
        for circle in circles(inside):
            names = ' '.join(os.path.basename(path) for path in circle)
            if len(circle) > FILES_IN_CIRCLE:
                yield f'circle of {len(circle)} files in {room}: {names}'


def past_faces(root, graph):
    faces = {sources.face(root, os.path.dirname(path)) for path in graph}
    for path, others in sorted(graph.items()):
        for other in others:
            if other.startswith('tests/'):
                yield f'{path} includes {other}: the product stands without its tests'
            elif other in graph and os.path.dirname(other) != os.path.dirname(path) and \
                    other not in faces:
                yield f'{path} includes {other}, which is private to its room'


def check_calls(nm, compiled):
    # What is generated into the build folder is data: it calls nobody.
    written = {path: {other: name for other, name in others.items() if in_tree(other)}
               for path, others in calls(nm, compiled).items() if in_tree(path)}
    return list(room_circles(written, 'calls')) + list(file_circles(written))


def in_tree(path):
    return not path.startswith('..') and not path.startswith('build')


def check_includes(root):
    graph = includes(root)
    own = {path: [other for other in others if other in graph] for path, others in graph.items()}
    return list(room_circles(own, 'includes')) + list(past_faces(root, graph))


# Each: the files, and what must be said of them (nothing: they are innocent).
PLANTED = [
    ({'base/a/a.c': 'void b(void); void a(void) { b(); }',
      'base/b/b.c': 'void a(void); void b(void) { a(); }'}, 'circle of rooms by calls: base/a base/b'),
    ({'base/one.c': 'void two(void); void one(void) { two(); }',
      'base/a/two.c': 'void one(void); void two(void) { one(); }'},
     'circle of rooms by calls: base base/a'),
    ({f'base/a/f{n}.c': f'void f{(n + 1) % 4}(void); void f{n}(void) {{ f{(n + 1) % 4}(); }}'
      for n in range(4)}, 'circle of 4 files in base/a: f0.c f1.c f2.c f3.c'),
    ({f'base/a/f{n}.c': f'void f{(n + 1) % 3}(void); void f{n}(void) {{ f{(n + 1) % 3}(); }}'
      for n in range(3)}, None),
    ({'base/a/a.h': '#include "base/b/b.h"', 'base/b/b.h': '', 'base/b/other.c':
      '#include "base/a/a.h"\nint other;'}, 'circle of rooms by includes: base/a base/b'),
    ({'base/a/inner.h': '', 'base/b/b.c': '#include "base/a/inner.h"\nint b;'},
     'base/b/b.c includes base/a/inner.h, which is private'),
    ({'base/a/a.h': '', 'base/a/inner.h': '', 'base/a/x.c': '#include "base/a/inner.h"\nint x;',
      'base/b/b.c': '#include "base/a/a.h"\nint b;'}, None),
    ({'base/a/a.c': '#include "tests/fake.h"\nint a;', 'tests/fake.h': ''}, 'without its tests'),
    ({'executor/hook/hook.c': 'void *malloc(unsigned long n) { return (void *)n; }',
      'executor/a/a.c': '#include <stdlib.h>\nvoid *a(void) { return malloc(1); }',
      'executor/hook/use.c': 'void *a(void); void *use(void) { return a(); }'}, None),
]


def plant(nm, compiler, files):
    with tempfile.TemporaryDirectory() as root:
        compiled = {}
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), 'w', encoding='utf-8') as stream:
                stream.write(text + '\n')
        for path in files:
            if path.endswith('.c'):
                output = os.path.join(root, path.replace('/', '_') + '.o')
                subprocess.run(compiler + ['-fno-builtin', '-I', root, '-c', '-o', output,
                                           os.path.join(root, path)],
                               check=True, capture_output=True)
                compiled[output] = path
        return (check_calls(nm, compiled) if compiled else []) + check_includes(root)


def self_test(nm, compiler):
    failures = []
    for files, expected in PLANTED:
        found = plant(nm, compiler, files)
        good = not found if expected is None else len(found) == 1 and expected in found[0]
        if not good:
            failures.append(f'planted {sorted(files)}: expected "{expected}", got {found}')
    return failures


if __name__ == '__main__':
    if sys.argv[1] == '--self-test':
        bad = self_test(sys.argv[2], sys.argv[3:])
    else:
        bad = check_calls(sys.argv[3], objects(sys.argv[1], sys.argv[2])) + \
            check_includes(sys.argv[1])
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
