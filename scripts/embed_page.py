#!/usr/bin/env python3
"""Writes the style and the script of the report's page as C: embed_page.py OUT.c STYLE SCRIPT

Comments and indentation stay behind. The hashes are those of the bytes between the tags, as a
Content-Security-Policy wants them; both texts start and end with a line end there."""
import base64
import hashlib
import pathlib
import re
import sys


def shorten(text):
  text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
  lines = [line.strip() for line in text.split('\n')]
  return '\n' + '\n'.join(line for line in lines if line) + '\n'


def literal(text):
  if not text.isascii() or '</' in text:
    sys.exit('embed_page.py: ASCII without end tags expected')
  text = text.replace('\\', '\\\\').replace('"', '\\"').replace('?', '\\077')
  return '\n'.join('\t"%s\\n"' % line for line in text.split('\n')[:-1])


def main():
  out, style, script = sys.argv[1:]
  lines = ['/* Made by scripts/embed_page.py; do not edit. */', '#include "reports/pages/style_and_script.h"', '']
  for name, path in (('style', style), ('script', script)):
    text = shorten(pathlib.Path(path).read_text(encoding='utf-8'))
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    lines += ['const char html_%s[] =' % name, literal(text) + ';',
      'const char html_%s_hash[] = "sha256-%s";' % (name, digest), '']
  pathlib.Path(out).write_text('\n'.join(lines))


main()
