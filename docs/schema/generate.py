"""Writes the JSON Schema of every document: generate.py documents.json TABLES FOLDER

documents.json says what each document holds, in a short form; TABLES holds the tables that
the program itself reads and writes with, which stand for most of the keys.

    "key": "TYPE"                 a value: string, boolean, integer, number, or several: number|null
    "key?": "TYPE"                the key may be absent
    "TYPE >= 0", "> 0", "~ REGEX" a limit, a pattern
    "one of A B C", "is A"        these texts, this text
    "@name"                       a part of documents.json, in common.json
    "... -- text"                 what it means; alone: of a key that a table brings
    {...}, [...]                  a map, a list; ["list of 0..8 -- text", ITEM] has limits or a meaning
    "<file": "table"              all keys of a table, as a file may have them
    "<document": "table"          all keys of a table, as our documents have them
    "<part": "name"               all keys of a part
    "*": ITEM                     any other key
    {"json": ...}                 JSON Schema as it is
"""

import json
import os
import re
import sys

LEAF = re.compile(r'([a-z|]+)(?: (>=|>) (\S+))?(?: ~ (.*))?$')
LIST = re.compile(r'list(?: of (\d+)\.\.(\d*))?$')


def read_tables(path):
    tables = {}
    with open(path, encoding='utf-8') as stream:
        lines = stream.read().splitlines()
    for line in lines:
        table, name, kind, required, sign, omits, *names = line.split(' ')
        tables.setdefault(table, []).append((name, kind, required, sign, omits, names))
    return tables


class Generator:
    def __init__(self, documents, tables):
        self.parts, self.tables = documents['parts'], tables

    def reference(self, name):
        return {'$ref': name if '#' in name else f'common.json#/definitions/{name}'}

    def leaf(self, text):
        text, _, meaning = text.partition(' -- ')
        if text.startswith('@'):
            schema = self.reference(text[1:])
        elif text.startswith('one of '):
            schema = {'enum': text[7:].split(' ')}
        elif text.startswith('is '):
            schema = {'const': text[3:]}
        else:
            types, sign, limit, pattern = LEAF.match(text).groups()
            schema = {'type': types.split('|') if '|' in types else types}
            if sign:
                schema['minimum' if sign == '>=' else 'exclusiveMinimum'] = json.loads(limit)
            if pattern:
                schema['pattern'] = pattern
        if meaning:
            schema['description'] = meaning
        return schema

    def field(self, table, entry):
        name, kind, _, sign, _, names = entry
        if kind == 'part':
            return self.map({'<document': f'{table}.{name}'})
        if kind == 'quantity':
            return self.reference('quantity')
        if kind == 'enum':
            return {'enum': names}
        if kind == 'runs':
            one = '|'.join(names)
            run = f'[1-9][0-9]*x({one})'
            return {'type': 'string', 'pattern': f'^({one}|{run}([+]{run})+)$'}
        schema = {'type': kind}
        if sign == 'not_negative':
            schema['minimum'] = 0
        elif sign == 'positive':
            schema.update({'minimum': 1} if kind == 'integer' else {'exclusiveMinimum': 0})
        return schema

    def keys_of_table(self, table, in_file):
        for entry in self.tables[table]:
            name, kind, required, _, omits, _ = entry
            absent = required == '-' and (in_file or omits != '-' or kind == 'string')
            yield name, self.field(table, entry), absent

    def keys(self, short):
        """(key, schema, whether it may be absent), later ones replacing earlier ones."""
        for key, value in short.items():
            if key in ('<file', '<document'):
                for table in value.split(' '):
                    yield from self.keys_of_table(table, key == '<file')
            elif key == '<part':
                yield from self.keys(self.parts[value])
            elif key not in ('--', '*'):
                yield key.rstrip('?'), value if isinstance(value, str) and \
                    value.startswith('-- ') else self.value(value), key.endswith('?')

    def map(self, short):
        schema = {'type': 'object'}
        if '--' in short:
            schema['description'] = short['--']
        properties, absent = {}, {}
        for key, value, may_be_absent in self.keys(short):
            if isinstance(value, str):
                properties[key] = dict(properties[key], description=value[3:])
                continue
            properties[key], absent[key] = value, may_be_absent
        schema['properties'] = properties
        schema['required'] = [key for key in properties if not absent[key]]
        schema['additionalProperties'] = self.value(short['*']) if '*' in short else False
        return schema

    def list(self, short):
        head, _, meaning = (short[0] if len(short) == 2 else 'list').partition(' -- ')
        least, most = LIST.match(head).groups()
        schema = {'type': 'array', 'items': self.value(short[-1])}
        if meaning:
            schema['description'] = meaning
        if least and least != '0':
            schema['minItems'] = int(least)
        if most:
            schema['maxItems'] = int(most)
        return schema

    def value(self, short):
        if isinstance(short, str):
            return self.leaf(short)
        if isinstance(short, list):
            return self.list(short)
        return short['json'] if set(short) == {'json'} else self.map(short)


def write(folder, name, schema):
    head = {'$schema': 'http://json-schema.org/draft-07/schema#', '$id': name}
    with open(os.path.join(folder, name), 'w', encoding='utf-8') as stream:
        json.dump({**head, **schema}, stream, indent=2, ensure_ascii=False)
        stream.write('\n')


def main(source, program, folder):
    with open(source, encoding='utf-8') as stream:
        documents = json.load(stream)
    generator = Generator(documents, read_tables(program))
    os.makedirs(folder, exist_ok=True)
    write(folder, 'common.json', {
        'title': 'Parts that several documents share',
        'definitions': {name: generator.value(part) for name, part in documents['parts'].items()}})
    for name, document in documents['documents'].items():
        schema = {'title': document['title'], **generator.value(document['document'])}
        if 'parts' in document:
            schema['definitions'] = {key: generator.value(part)
                                     for key, part in document['parts'].items()}
        write(folder, f'{name}.json', schema)


if __name__ == '__main__':
    main(*sys.argv[1:])
