"""scripts/embed.py: what the C program reads is what the file holds, byte for byte.

test_embed.py EMBED.py ROOT COMPILER..."""
import os
import subprocess
import sys
import tempfile

MAIN = r'''
#include <stdio.h>
#include "base/embedded.h"
extern const struct embedded_file data[];
extern const int n_data;
int main(void)
{
  for (int i = 0; i < n_data; i++) {
    printf("%s %zu\n", data[i].name, data[i].length);
    fwrite(data[i].text, 1, data[i].length, stdout);
  }
  return data[n_data].name != NULL;
}
'''
FILES = {
  'b.yaml': b'plain: text\n',
  'p5.48xlarge.yaml': 'quotes "\' \\ tab\t trigraph ??/ \u00e9 1\x01'.encode() + b'2\r\n\n\n# end',
  'a.yaml': b'',
}


def embed(script, folder, names):
  command = [sys.executable, script, os.path.join(folder, 'out.c'), 'data']
  return subprocess.run(command + [os.path.join(folder, name) for name in names],
    capture_output=True, text=True)


def main():
  script, root, compiler = sys.argv[1], sys.argv[2], sys.argv[3:]
  with tempfile.TemporaryDirectory() as folder:
    for name, content in {**FILES, 'main.c': MAIN.encode(), 'nul.yaml': b'a\0b'}.items():
      with open(os.path.join(folder, name), 'wb') as stream:
        stream.write(content)
    assert embed(script, folder, FILES).returncode == 0
    program = os.path.join(folder, 'program')
    subprocess.run(compiler + ['-std=c11', '-I', root, '-o', program,
      os.path.join(folder, 'out.c'), os.path.join(folder, 'main.c')], check=True)
    got = subprocess.run([program], capture_output=True, check=True).stdout
    expected = b''.join(b'%s %d\n%s' % (name[:-5].encode(), len(FILES[name]), FILES[name])
      for name in sorted(FILES))
    assert got == expected, (got, expected)
    assert 'NUL' in embed(script, folder, ['nul.yaml']).stderr
    os.mkdir(os.path.join(folder, 'x'))
    with open(os.path.join(folder, 'x', 'b.json'), 'w') as stream:
      stream.write('{}')
    assert 'two files' in embed(script, folder, ['b.yaml', 'x/b.json']).stderr


main()
