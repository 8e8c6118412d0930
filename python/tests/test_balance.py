"""Balanced parts and micro batches, with verl's vectors (utils/seqlen_balancing.py, run), through the C functions."""

import unittest

import numpy

import treadle
from treadle import balance

EIGHT = [7, 3, 9, 1, 5, 5, 2, 8]


class TestBalance(unittest.TestCase):
    def refused(self, words, call, *arguments, **named):
        with self.assertRaisesRegex(treadle.Refused, words):
            call(*arguments, **named)

    def test_vectors(self):
        sixteen = [100] * 4 + [200] * 4 + [150] * 4 + [50] * 4
        self.assertEqual(balance.divide(sixteen, 2)[0], [0, 2, 4, 7, 8, 10, 12, 14])
        four = [[0, 7, 8, 12], [1, 6, 9, 13], [2, 5, 10, 14], [3, 4, 11, 15]]
        self.assertEqual(balance.divide(numpy.array(sixteen), 4), four)
        self.assertEqual(balance.divide(EIGHT, 2), [[0, 1, 6, 7], [2, 3, 4, 5]])
        self.assertEqual(balance.divide(EIGHT, 4), [[6, 7], [4, 5], [2, 3], [0, 1]])
        self.assertEqual(balance.divide(EIGHT, 3, equal=False), [[0, 5, 6], [1, 2, 3], [4, 7]])
        self.assertEqual(balance.divide(EIGHT, 2, kind="greedy"), [[0, 3, 4, 6], [1, 2, 5, 7]])
        self.assertEqual(balance.divide(EIGHT, 2, kind="greedy", equal=False), [[0, 3, 4, 6, 7], [1, 2, 5]])
        self.assertEqual(balance.divide(EIGHT, 2, ends_small=True), [[6, 0, 7, 1], [3, 5, 2, 4]])
        self.assertEqual(balance.invert([3, 1, 0, 2]), [2, 1, 3, 0])
        self.assertEqual(balance.workload([0, 1, 4096]), [0, 24577, 24576 * 4096 + 4096**2])

    def test_groups(self):
        parts = balance.divide(EIGHT, 2, groups=["a", "a", "a", "b", "c", "c", "d", "d"])
        self.assertEqual(parts, [[4, 5, 6, 7], [0, 1, 2, 3]])
        self.refused("again at row 4", balance.divide, EIGHT, 2, groups="aabbaccc")
        self.refused("groups of 2 rows", balance.divide, EIGHT, 2, groups="ab")

    def test_micro_batches(self):
        self.assertEqual(balance.micro_count(EIGHT, 10), 4)
        self.assertEqual(balance.micro_count(EIGHT, 10, least=5, multiple=3), 6)
        self.assertEqual(balance.micro_count(EIGHT, 10, dp_most=7), 7)
        self.assertEqual(balance.micro_divide(EIGHT, 14), [[4, 7], [0, 5, 6], [1, 2, 3]])
        self.assertEqual(balance.micro_divide([], 14), [])
        self.refused("row 2 has 9 tokens", balance.micro_count, EIGHT, 8)
        self.refused("more micro batches than 8 rows", balance.micro_divide, EIGHT, 10, least=9)

    def test_figures(self):
        lengths = list(range(1, 9))
        wanted = {"min": 10, "max": 26, "minmax_diff": 16, "balanced_min": 18, "balanced_max": 18, "mean": 18.0}
        self.assertEqual(balance.figures(lengths, balance.divide(lengths, 2)), wanted)
        self.refused("parts of 2 rows", balance.figures, lengths, [[0], [1]])
        self.refused("both have row 0", balance.figures, [1, 2], [[0], [0]])

    def test_refused(self):
        self.refused("do not divide into 3", balance.divide, EIGHT, 3)
        self.refused("k_partitions:.9", balance.divide, EIGHT, 9)
        self.refused("k_partitions:.100000000000", balance.divide, EIGHT, 10**11)
        self.refused("parts is -1", balance.divide, EIGHT, -1)
        self.refused("0 parts", balance.divide, EIGHT, 0)
        self.refused("below 0", balance.divide, [1, -1], 1)
        self.refused("kind is 'kk'", balance.divide, EIGHT, 2, kind="kk")
        self.refused("not a whole number", balance.workload, [1.5])
        self.refused("row 0 has 4611686018427387904 tokens", balance.workload, [2**62])


if __name__ == "__main__":
    unittest.main()
