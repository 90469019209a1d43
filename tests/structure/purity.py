"""Fails when base..frameworks refer to anything but arithmetic, text and memory.

They will run inside a web page, where there is no file, process, thread, clock, locale or
environment; what they may call is therefore listed, and everything else is refused. Their objects
also show who calls whom, which must agree with the folder table even where no header tells.

    purity.py NM libFOLDER.a...       checks static libraries
    purity.py --self-test NM CC...   compiles violations and fails unless each is found
"""

import os
import re
import subprocess
import sys
import tempfile

import sources

# The C library's pure part. snprintf and strtod follow LC_NUMERIC, which stays "C": the style of a
# number is nobody's to change, hence setlocale(LC_ALL, ...) is refused in all folders.
PURE_LIBC = set('''
    malloc calloc realloc free malloc_trim abort __assert_fail __stack_chk_fail __errno_location
    memcpy memmove memset memcmp memchr memmem memrchr mempcpy
    strlen strnlen strcmp strncmp strcasecmp strncasecmp strchr strrchr strchrnul strstr strcspn
    strspn strpbrk strcpy strncpy stpcpy strcat strncat strtok_r
    strtol strtoll strtoul strtoull strtod strtof atoi atol atoll
    snprintf vsnprintf sscanf __isoc99_sscanf
    qsort qsort_r bsearch abs labs llabs div ldiv lldiv
    __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc isalpha isdigit isalnum isspace isxdigit
    isprint ispunct isupper islower tolower toupper
    _setjmp longjmp __longjmp_chk
    _GLOBAL_OFFSET_TABLE_
    '''.split())
PURE_MATH = re.compile(r'^(f?abs|fmin|fmax|fma|floor|ceil|round|l?lround|l?lrint|rint|nearbyint|'
                       r'trunc|fmod|remainder|sqrt|cbrt|hypot|exp|exp2|expm1|log|log2|log10|log1p|'
                       r'pow|ldexp|frexp|scalbn|modf|copysign|nextafter|erf|tanh|sin|cos|atan2?|'
                       r'__isnan|__isinf|__finite|__fpclassify|__signbit)[fl]?$')
# What gcc calls for 64-bit arithmetic on a 32-bit machine, and its own helpers.
COMPILER = re.compile(r'^__(x86\.get_pc_thunk\..*|u?divdi3|u?moddi3|u?divmoddi4|mul[o-z]?di[34]|'
                      r'u?mul[vo]ti4|mulodi4|popcount[sd]i2|(u|f)?(div|mod)ti3|stack_chk_fail_local)$')
# Libraries, the folders that may call them, and what of them opens a file or a stream after all.
LIBRARIES = [
    (re.compile('^fy_'), {'base'}, re.compile('_(file|fp|fd)(_|$)|_from_file|stdin|stdout')),
    (re.compile('^XXH'), {'base'}, re.compile('$^')),
    (re.compile('^csv_'), {'base'}, re.compile('fwrite')),
    (re.compile('^XML_'), {'topologies'}, re.compile('$^')),
    (re.compile('^glp_'), {'planner'}, re.compile('^glp_(read|write|print)')),
    (re.compile('^scols_'), {'reports'},
     re.compile('^scols_(print_table|table_(set_stream|get_stream)|init_debug)$')),
]


def symbols(nm, archive):
    """(undefined, defined): {symbol: object}, and the set of global symbols."""
    out = subprocess.run([nm, '-A', '-g', archive], check=True, text=True,
                         capture_output=True).stdout
    undefined, defined = {}, set()
    for line in out.splitlines():
        match = re.match(r'(.*?):\s*([0-9a-f]*)\s+([A-Za-z])\s+(\S+)$', line)
        if not match:
            continue
        where, _, kind, name = match.groups()
        if kind in 'Uwv':
            undefined.setdefault(name, where.split(':')[-1])
        else:
            defined.add(name)
    return undefined, defined


def foreign(folder, name):
    """What is wrong with this folder calling a symbol that none of ours defines, or None."""
    if name in PURE_LIBC or PURE_MATH.match(name) or COMPILER.match(name):
        return None
    for prefix, folders, impure in LIBRARIES:
        if prefix.match(name):
            if folder not in folders:
                return f'{name} is called by {", ".join(sorted(folders))} only'
            return f'{name} touches a file or a stream' if impure.search(name) else None
    return f'{name} is not among the pure symbols that purity.py lists'


def may_call(folder, other):
    return other == folder or any(entry.split('/')[0] == other
                                  for entry in sources.MAY_INCLUDE[folder])


def check(nm, archives):
    tables = {folder: symbols(nm, archive) for folder, archive in archives.items()}
    owner = {name: folder for folder, (_, defined) in tables.items() for name in defined}
    problems = []
    for folder, (undefined, _) in tables.items():
        for name, where in sorted(undefined.items()):
            if name in owner:
                other = owner[name]
                found = None if may_call(folder, other) else f'{name} belongs to {other}'
            else:
                found = foreign(folder, name)
            if found:
                problems.append(f'{folder}: {where}: {found}')
    return problems


PLANTED = [
    ('base', '#include <stdio.h>\nvoid f(void) { fopen("x", "r"); }', 'fopen'),
    ('base', '#include <stdio.h>\nvoid f(void) { fprintf(stderr, "x %d", 1); }', 'stderr'),
    ('models', '#include <stdlib.h>\nchar *f(void) { return getenv("HOME"); }', 'getenv'),
    ('reports', '#include <time.h>\nlong f(void) { return (long)time(0); }', 'time'),
    ('simulator', '#include <pthread.h>\nvoid f(void) { pthread_exit(0); }', 'pthread_exit'),
    ('planner', '#include <stdio.h>\nvoid f(void) { puts("x"); }', 'puts'),
    ('models', 'int planner_f(void);\nint f(void) { return planner_f(); }', 'belongs to planner'),
    ('models', 'void fy_parser_destroy(void);\nvoid f(void) { fy_parser_destroy(); }', 'base only'),
    ('base', 'void fy_parser_set_input_fp(void);\nvoid f(void) { fy_parser_set_input_fp(); }',
     'touches a file'),
]
INNOCENT = [
    ('models', '#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n'
     'int f(char *b, double x) { return snprintf(b, 9, "%g", pow(x, strtod(b, 0))); }'),
    ('reports', 'int planner_f(void);\nint f(void) { return planner_f(); }'),
]


def planted_problems(nm, compiler, folder, code):
    with tempfile.TemporaryDirectory() as here:
        archives = {}
        for name, text in [('planner', 'int planner_f(void) { return 1; }'), (folder, code)]:
            base = os.path.join(here, name)
            with open(base + '.c', 'w') as stream:
                stream.write(text + '\n')
            subprocess.run(compiler + ['-O2', '-c', '-o', base + '.o', base + '.c'], check=True,
                           capture_output=True)
            archives[name] = base + '.o'
        return check(nm, archives)


def self_test(nm, compiler):
    failures = []
    for folder, code, expected in PLANTED:
        found = planted_problems(nm, compiler, folder, code)
        if not any(expected in line for line in found):
            failures.append(f'{folder}: {code!r}: expected "{expected}", got {found}')
    for folder, code in INNOCENT:
        found = planted_problems(nm, compiler, folder, code)
        if found:
            failures.append(f'{folder}: {code!r}: got {found}')
    return failures


if __name__ == '__main__':
    if sys.argv[1] == '--self-test':
        bad = self_test(sys.argv[2], sys.argv[3:])
    else:
        bad = check(sys.argv[1], {re.sub(r'^lib|\.a$', '', os.path.basename(path)): path
                                  for path in sys.argv[2:]})
    print('\n'.join(bad))
    sys.exit(1 if bad else 0)
