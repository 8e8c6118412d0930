"""The dock, with the numbers of MindSpeed-RL's rules, through the C functions."""

import unittest

import treadle


class TestDock(unittest.TestCase):
    def make(self, group=1):
        return treadle.Dock(8, ["ids", "ref"], ["reference", "advantages"], group=group)

    def test_each_consumer_takes_a_row_once(self):
        dock = self.make()
        self.assertEqual(dock.take("reference", ["ids"]), [])
        dock.put(["ids"], range(3))
        self.assertEqual(dock.ready("ids"), 3)
        self.assertEqual(dock.take("reference", ["ids"], 2), [0, 1])
        self.assertEqual(dock.take("reference", ["ids"], 2), [])
        self.assertEqual(dock.take("advantages", ["ids", "ref"]), [])
        dock.put(["ref"], (1, 2))
        self.assertEqual(dock.take("advantages", ["ids", "ref"]), [1, 2])
        dock.put(["ids"], range(8))
        self.assertEqual(dock.take("reference", ["ids"]), [2, 3, 4, 5, 6, 7])
        self.assertTrue(dock.all_consumed("reference"))
        self.assertFalse(dock.all_consumed("advantages"))
        dock.clear()
        self.assertFalse(dock.all_consumed("reference"))
        self.assertEqual(dock.ready("ids"), 0)

    def test_padding_and_groups(self):
        dock = self.make(group=2)
        dock.put(["ids"], [0])
        self.assertEqual(dock.take("reference", ["ids"], groups=True), [])
        self.assertEqual(dock.take("reference", ["ids"], 2, dp_size=2, pads=True), [0, treadle.dock.PADDING])
        dock.put(["ids"], [1, 2, 3])
        self.assertEqual(dock.take("advantages", ["ids"], groups=True), [0, 1, 2, 3])
        dock.put(["ids"], [6])
        self.assertEqual(dock.take("reference", ["ids"], in_order=True), [1, 2, 3])
        self.assertEqual(dock.take("reference", ["ids"], dp_size=5, pads=True), [6, -2, -2, -2, -2])

    def test_refused(self):
        dock = self.make()
        for words, call in (
            ("no consumer 'critic'; it has 'reference', 'advantages'", lambda: dock.take("critic", ["ids"])),
            ("no column 'logits'; it has 'ids', 'ref'", lambda: dock.put(["logits"], [0])),
            ("row 8 is not of the dock", lambda: dock.put(["ids"], [8])),
            ("3 rows at a time do not divide the 8", lambda: dock.take("reference", ["ids"], 3)),
            ("dp_size", lambda: dock.take("reference", ["ids"], dp_size=2**40)),
            ("column 'a' twice", lambda: treadle.Dock(8, ["a", "a"], ["b"])),
            ("groups of 3 rows", lambda: self.make(group=3)),
            ("zero character", lambda: dock.take("a\0b", ["ids"])),
        ):
            with self.subTest(words), self.assertRaisesRegex(treadle.Refused, words):
                call()


if __name__ == "__main__":
    unittest.main()
