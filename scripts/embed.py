#!/usr/bin/env python3
"""Writes data files as C: embed.py OUT.c SYMBOL FILES...

OUT.c defines `const struct embedded_file SYMBOL[]`, sorted by name and ended by an all-NULL entry
that is not counted, and `const int n_SYMBOL`. An entry's name is the file's without folder and last
extension. Bytes outside of printable ASCII become octal escapes, so OUT.c is plain ASCII."""
import pathlib
import sys

SPECIAL = {ord('"'): '\\"', ord('\\'): '\\\\', ord('\n'): '\\n', ord('\t'): '\\t'}


def literal(data):
  """Adjacent C string literals, one a line of the file; '?' is escaped against trigraphs."""
  def char(byte):
    if byte in SPECIAL:
      return SPECIAL[byte]
    return chr(byte) if 32 <= byte < 127 and byte != ord('?') else '\\%03o' % byte
  lines = data.splitlines(keepends=True) or [b'']
  return '\n'.join('\t\t"%s"' % ''.join(map(char, line)) for line in lines)


def entries(paths):
  files = {}
  for path in map(pathlib.Path, paths):
    data = path.read_bytes()
    if path.stem in files:
      sys.exit('embed.py: two files are named "%s"' % path.stem)
    if b'\0' in data:
      sys.exit('embed.py: %s: a text file expected, it has a NUL byte' % path)
    files[path.stem] = data
  return sorted(files.items(), key=lambda item: item[0].encode())


def main():
  if len(sys.argv) < 3:
    sys.exit('usage: embed.py OUT.c SYMBOL FILES...')
  out, symbol, files = sys.argv[1], sys.argv[2], entries(sys.argv[3:])
  text = ['/* Made by scripts/embed.py; do not edit. */', '#include "base/embedded.h"', '',
    'extern const struct embedded_file %s[];' % symbol, 'extern const int n_%s;' % symbol, '',
    'const struct embedded_file %s[] = {' % symbol]
  for name, data in files:
    text.append('\t{"%s",\n%s,\n\t\t%d},' % (name, literal(data), len(data)))
  text += ['\t{0, 0, 0},', '};', 'const int n_%s = %d;' % (symbol, len(files)), '']
  pathlib.Path(out).write_text('\n'.join(text))


main()
