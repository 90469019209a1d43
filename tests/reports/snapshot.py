"""The memory snapshot, read as memory_viz reads it: snapshot.py WRITE_DOCUMENTS

The pickle holds data alone; the blocks of a segment fill it; the events replayed never overlap, and
end in the state that the segment shows. Its peak is near the ledger's: the order of time is not
that of the list, and blocks are rounded.
"""

import json
import os
import pickle
import pickletools
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
# Of torch.cuda.memory._snapshot() (torch/cuda/_memory_viz.py, torch/cuda/memory.py).
SEGMENT = {'device', 'address', 'total_size', 'allocated_size', 'active_size', 'requested_size',
           'stream', 'segment_type', 'segment_pool_id', 'is_expandable', 'frames', 'blocks'}
BLOCK = {'address', 'size', 'requested_size', 'state', 'frames'}
EVENT = {'action', 'addr', 'size', 'stream', 'time_us', 'frames'}
RUNS_CODE = {'GLOBAL', 'STACK_GLOBAL', 'REDUCE', 'INST', 'OBJ', 'NEWOBJ', 'NEWOBJ_EX', 'BUILD',
             'EXT1', 'EXT2', 'EXT4', 'PERSID', 'BINPERSID'}


class Snapshot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([PROGRAM, folder], check=True)
            with open(os.path.join(folder, 'snapshot.pickle'), 'rb') as stream:
                cls.data = stream.read()
            with open(os.path.join(folder, 'predict.json'), encoding='utf-8') as stream:
                cls.prediction = json.load(stream)['prediction']
        cls.snapshot = pickle.loads(cls.data)

    def test_data_alone(self):
        opcodes = {opcode.name for opcode, _, _ in pickletools.genops(self.data)}
        self.assertEqual(opcodes & RUNS_CODE, set())
        self.assertIn('STOP', opcodes)

    def test_keys(self):
        self.assertEqual(set(self.snapshot), {'segments', 'device_traces', 'allocator_settings'})
        for segment in self.snapshot['segments']:
            self.assertEqual(set(segment), SEGMENT)
            for block in segment['blocks']:
                self.assertEqual(set(block), BLOCK)
                self.assertIn(block['state'], ('active_allocated', 'inactive'))
        for event in self.snapshot['device_traces'][0]:
            self.assertEqual(set(event), EVENT)
            for frame in event['frames']:
                self.assertEqual(set(frame), {'filename', 'line', 'name'})

    def test_sums(self):
        for segment in self.snapshot['segments']:
            at = segment['address']
            for block in segment['blocks']:
                self.assertEqual(block['address'], at)
                at += block['size']
            self.assertEqual(at, segment['address'] + segment['total_size'])
            active = [b for b in segment['blocks'] if b['state'] == 'active_allocated']
            self.assertEqual(sum(b['size'] for b in active), segment['allocated_size'])
            self.assertEqual(sum(b['requested_size'] for b in active), segment['requested_size'])

    def test_replay(self):
        live, peak, before, counts = {}, 0, 0, {}
        for event in self.snapshot['device_traces'][0][1:]:
            counts[event['action']] = counts.get(event['action'], 0) + 1
            self.assertGreaterEqual(event['time_us'], before)
            before = event['time_us']
            if event['action'] == 'alloc':
                for address, size in live.items():
                    self.assertTrue(address + size <= event['addr'] or
                                    event['addr'] + event['size'] <= address)
                live[event['addr']] = event['size']
                peak = max(peak, sum(live.values()))
            elif event['action'] == 'free_completed':
                self.assertEqual(live.pop(event['addr']), event['size'])
            else:
                self.assertIn(event['addr'], live)
        self.assertEqual(counts['free_requested'], counts['free_completed'])
        self.assertGreater(counts['alloc'], 50)
        state = {b['address']: b['size'] for s in self.snapshot['segments'] for b in s['blocks']
                 if b['state'] == 'active_allocated'}
        self.assertEqual(live, state)
        ledger = self.prediction['ledger_peak_bytes']
        self.assertGreaterEqual(peak, 0.9 * ledger)
        self.assertLessEqual(peak, 1.1 * ledger)

    def test_frames(self):
        names = {frame['name'] for event in self.snapshot['device_traces'][0]
                 for frame in event['frames']}
        self.assertIn('forward transformer.h.0', names)
        self.assertIn('unsharded transformer.h.0', names)


if __name__ == '__main__':
    unittest.main()
