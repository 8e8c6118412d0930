"""Batches: columns from Python, numpy and torch, on one memory; what keeps it; what is refused."""

import gc
import importlib.util
import os
import pickle
import tempfile
import threading
import unittest
import weakref

import numpy

import treadle

HAS_TORCH = importlib.util.find_spec("torch") is not None


def sample():
    return treadle.Batch.of(
        {
            "uid": ["7-0", "7-1", "é\0x"],
            "ids": [[31, 7, 2], [], [31]],
            "rollout_log_probs": [[-0.5, -1.25, float("nan")], [], [1e-30]],
            "score": [1, 0.5, -2],
            "flag": [True, False, True],
            "many": numpy.arange(6, dtype=numpy.int64).reshape(3, 2),
            "raw": [b"a\0", b"", b"\xff"],
        },
        meta={"step": 3, "metrics": {"a": [1.5]}},
    )


class TestBatch(unittest.TestCase):
    def refused(self, words, call, *arguments, **named):
        with self.assertRaisesRegex(treadle.Refused, words):
            call(*arguments, **named)

    def test_values(self):
        batch = sample()
        self.assertEqual(len(batch), 3)
        self.assertEqual(list(batch), ["uid", "ids", "rollout_log_probs", "score", "flag", "many", "raw"])
        types = {name: (batch[name].type, batch[name].width) for name in batch}
        self.assertEqual(
            types,
            {
                "uid": ("text", None),
                "ids": ("int32", None),
                "rollout_log_probs": ("fp32", None),
                "score": ("fp64", 1),
                "flag": ("bool", 1),
                "many": ("int64", 2),
                "raw": ("bytes", None),
            },
        )
        self.assertEqual(list(batch["uid"]), ["7-0", "7-1", "é\0x"])
        self.assertEqual(batch["ids"].tolist(), [[31, 7, 2], [], [31]])
        self.assertEqual(batch["ids"].offsets.tolist(), [0, 3, 3, 4])
        self.assertEqual(batch["score"].tolist(), [1, 0.5, -2])
        self.assertEqual(batch["score"][-1], -2)
        self.assertEqual(batch["flag"].tolist(), [True, False, True])
        self.assertEqual(batch["many"].tolist(), [[0, 1], [2, 3], [4, 5]])
        self.assertEqual(list(batch["raw"]), [b"a\0", b"", b"\xff"])
        self.assertEqual(batch["rollout_log_probs"].numpy().dtype, numpy.float32)
        self.assertTrue(numpy.isnan(batch["rollout_log_probs"][0][2]))
        self.assertEqual([row.tolist() for row in batch["ids"][1:]], [[], [31]])
        self.assertEqual(dict(batch.meta), {"step": 3, "metrics": {"a": [1.5]}})
        with self.assertRaises(IndexError):
            batch["score"][3]
        with self.assertRaisesRegex(KeyError, "no column 'scores'; it has uid"):
            batch["scores"]
        self.assertNotIn("a\0b", batch)

    def test_same_memory(self):
        """Nothing of an array is copied, in either direction, through selections, slices, splits and unions."""
        scores, ids = numpy.zeros(4), numpy.arange(10, dtype=numpy.int32)
        batch = treadle.Batch(4)
        batch["score"] = scores
        batch.add("ids", ids, offsets=[1, 3, 3, 6, 10])
        for shown in (
            batch["score"],
            batch.select("score")["score"],
            batch[0:4]["score"],
            batch.chunk(1)[0]["score"],
        ):
            self.assertEqual(shown.numpy().ctypes.data, scores.ctypes.data)
        other = treadle.Batch(4)
        other.union(batch)
        self.assertEqual(other["ids"].numpy().ctypes.data, ids.ctypes.data + 4)
        other["score"].numpy()[2] = 9
        self.assertEqual(scores.tolist(), [0, 0, 9, 0])
        part = batch[2:]
        self.assertEqual(part["ids"].tolist(), [[3, 4, 5], [6, 7, 8, 9]])
        self.assertEqual(part["ids"].offsets.tolist(), [0, 3, 7])
        part["ids"][1][:] = -1
        self.assertEqual(ids.tolist(), [0, 1, 2, 3, 4, 5, -1, -1, -1, -1])

    def test_who_keeps_memory(self):
        class Array(numpy.ndarray):
            """One that can be referred to weakly."""

        scores = numpy.arange(3.0).view(Array)
        told = weakref.ref(scores)
        batch = treadle.Batch(3)
        batch["score"] = scores
        del scores
        column = batch["score"]
        del batch["score"]
        batch.close()
        shown = column.numpy()
        del column, batch
        gc.collect()
        self.assertIsNotNone(told())
        self.assertEqual(shown.tolist(), [0, 1, 2])
        row = shown[1:]
        del shown
        gc.collect()
        self.assertEqual(row.tolist(), [1, 2])
        del row
        gc.collect()
        self.assertIsNone(told())

    def test_memory_goes_where_it_was_refused(self):
        class Array(numpy.ndarray):
            pass

        batch = treadle.Batch(2)
        batch["score"] = [1.0, 2.0]
        scores = numpy.arange(2.0).view(Array)
        told = weakref.ref(scores)
        self.refused("score", batch.add, "score", scores)
        del scores
        gc.collect()
        self.assertIsNone(told())

    def test_ended_by_another_thread(self):
        batches = [sample() for _ in range(50)]
        batches += [batch[1:] for batch in batches]
        thread = threading.Thread(target=batches.clear)
        thread.start()
        thread.join()
        gc.collect()

    def test_rows(self):
        batch = sample()
        self.assertEqual(batch.index([2, 0, 2])["ids"].tolist(), [[31], [31, 7, 2], [31]])
        self.assertEqual(list(batch.index([True, False, True])["uid"]), ["7-0", "é\0x"])
        self.assertEqual(batch.index(batch["score"].numpy() < 0)["score"].tolist(), [-2])
        self.assertEqual(batch.index(numpy.array([1]))["score"].tolist(), [0.5])
        self.assertEqual(len(batch.index([])), 0)
        self.assertEqual(batch[::-1]["score"].tolist(), [-2, 0.5, 1])
        self.assertEqual(len(batch[2:1]), 0)
        self.assertEqual(batch.repeat(2)["score"].tolist(), [1, 1, 0.5, 0.5, -2, -2])
        self.assertEqual(batch.repeat(2, interleaved=False)["score"].tolist(), [1, 0.5, -2] * 2)
        one, two = batch.split([1, 2])
        self.assertEqual((len(one), two["score"].tolist()), (1, [0.5, -2]))
        self.assertEqual([len(part) for part in batch.chunk(3)], [1, 1, 1])
        whole = treadle.Batch.concat([two, one])
        self.assertEqual(whole["raw"].tolist(), [b"", b"\xff", b"a\0"])
        self.assertEqual(dict(whole.meta), {"step": 3, "metrics": {"a": [[1.5], [1.5]]}})
        whole.reorder([2, 0, 1])
        self.assertEqual(whole["score"].tolist(), [1, 0.5, -2])
        self.refused("row 3; the batch has 3", batch.index, [0, 3])
        self.refused("place 1 has 1.5", batch.index, [0, 1.5])
        self.refused("place 1 has True", batch.index, [0, True])
        self.refused("only support equal chunk", batch.chunk, 2)
        self.refused("at least 1", batch.chunk, 0)
        self.refused("at least 1", batch.split, 0)
        self.refused("have 2 rows together", batch.split, [1, 1])
        self.refused("times", batch.repeat, 0)

    def test_rows_as_verl_has_them(self):
        """verl's numbers for a DataProto."""
        ten = treadle.Batch.of({"n": list(range(10))})
        self.assertEqual([len(part) for part in ten.split(3)], [3, 3, 3, 1])
        self.assertEqual([part["n"].tolist() for part in ten.split(15)], [list(range(10))])
        three = treadle.Batch.of({"obs": numpy.array([[1, 2], [3, 4], [5, 6]]), "labels": ["a", "b", "c"]})
        made = three.sample_level_repeat([3, 1, 2])
        self.assertEqual(made["obs"].tolist(), [[1, 2]] * 3 + [[3, 4]] + [[5, 6]] * 2)
        self.assertEqual("".join(made["labels"]), "aaabcc")
        for divisor, labels in (2, "abca"), (3, "abc"), (7, "abcabca"):
            padded, padding = three.pad_to_divisor(divisor)
            self.assertEqual(("".join(padded["labels"]), padding), (labels, len(labels) - 3))
            self.assertEqual(padded.unpad(padding)["obs"].tolist(), three["obs"].tolist())
        folded = three.repeat(2).fold(3)
        self.assertEqual((len(folded), folded["obs"].width, folded["labels.counts"].tolist()), (3, 4, [[1, 1]] * 3))
        folded.reorder([1, 2, 0])
        made = folded.unfold(2)
        self.assertEqual(made["obs"].tolist(), [[3, 4], [3, 4], [5, 6], [5, 6], [1, 2], [1, 2]])
        self.assertEqual(list(made), ["obs", "labels"])
        chunks = treadle.Batch.of({"obs": numpy.arange(1, 13).reshape(3, 4), "labels": ["a", "b", "c"]})
        made = chunks.unfold_columns(2, "obs")
        self.assertEqual(made["obs"].tolist(), [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]])
        self.assertEqual("".join(made["labels"]), "aabbcc")
        self.refused("counts; the batch has 3 rows", three.sample_level_repeat, [1])
        self.refused("do not fold", three.fold, 2)
        self.refused("labels.counts", three.unfold, 2)
        self.refused("do not divide into 3", three.unfold_columns, 3, "obs")
        self.refused("a divisor of 0", three.pad_to_divisor, 0)
        self.refused("pad_to_divisor", three.pad_to_divisor, "two")
        self.refused("4 rows of padding", three.unpad, 4)

    def test_pop(self):
        batch = sample()
        popped = batch.pop("ids", "uid", meta=["step"])
        self.assertEqual((list(popped), dict(popped.meta)), (["ids", "uid"], {"step": 3}))
        self.assertEqual(popped["ids"].tolist(), [[31, 7, 2], [], [31]])
        self.assertEqual((list(batch)[0], list(batch.meta)), ("rollout_log_probs", ["metrics"]))
        self.refused("no column 'ids'", batch.pop, "ids")
        self.refused("no meta 'step'", batch.pop, "score", meta=["step"])
        self.assertIn("score", batch)

    def test_iterate(self):
        batch = treadle.Batch.of({"n": list(range(12))})

        def rows(*arguments, **named):
            return [mini["n"].tolist() for mini in batch.iterate(*arguments, **named)]

        self.assertEqual(rows(6, shuffled=False), [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]])
        drawn = rows(3, epochs=2, seed=5)
        self.assertEqual([len(mini) for mini in drawn], [3] * 8)
        self.assertEqual([sorted(sum(drawn[:4], [])), sorted(sum(drawn[4:], []))], [list(range(12))] * 2)
        self.assertNotEqual(drawn[:4], drawn[4:])
        self.assertEqual(rows(3, epochs=2, seed=5), drawn)
        self.assertNotEqual(rows(3, epochs=2, seed=6), drawn)
        iterator = batch.iterate(6)
        batch.close()
        self.assertEqual(sorted(n for mini in iterator for n in mini["n"].tolist()), list(range(12)))
        batch = treadle.Batch.of({"n": list(range(12))})
        self.refused("mini batches of 5 rows", batch.iterate, 5)
        self.refused("a seed of -1", batch.iterate, 3, seed=-1)

    def test_changes(self):
        batch = sample()
        batch.rename("score", "reward")
        del batch["many"]
        self.assertEqual(list(batch), ["uid", "ids", "rollout_log_probs", "reward", "flag", "raw"])
        self.refused("no column 'scor'", batch.rename, "scor", "x")
        batch.meta["x"] = [1, {"a": None}]
        del batch.meta["step"]
        self.assertEqual(sorted(batch.meta), ["metrics", "x"])
        self.assertEqual(batch.meta["x"], [1, {"a": None}])
        with self.assertRaises(KeyError):
            batch.meta["step"]
        with self.assertRaises(KeyError):
            del batch.meta["step"]
        self.refused("meta 'y'", batch.meta.__setitem__, "y", object())
        other = sample()
        other["ids"].numpy()[0] = 5
        self.refused("ids", batch.union, other)
        batch.union(other.select("many"))
        self.assertIn("many", batch)

    def test_files(self):
        with tempfile.TemporaryDirectory(prefix="treadle-test-") as folder:
            path = os.path.join(folder, "batch")
            batch = sample()
            batch.save(path)
            read = treadle.Batch.load(path)
            self.assertEqual(list(read), list(batch))
            for name in batch:
                self.assertEqual(str(read[name].tolist()), str(batch[name].tolist()))
            self.assertEqual(dict(read.meta), dict(batch.meta))
            self.refused("no such|batch.json", treadle.Batch.load, os.path.join(folder, "none"))

    def test_refused(self):
        batch = treadle.Batch(2)
        add, strided = batch.add, numpy.zeros((2, 4))[:, ::2]
        self.refused("strides", add, "a", strided)
        self.refused("float16", add, "a", numpy.zeros(2, numpy.float16))
        self.refused("object", add, "a", numpy.array(["x", None]))
        self.refused("<U1", add, "a", numpy.array(["x", "y"]))
        self.refused(r"shape \[3\]; it must be \[2\]", add, "a", numpy.zeros(3))
        self.refused(r"shape \[2, 1, 1\]", add, "a", numpy.zeros((2, 1, 1)))
        self.refused(r"shape \[2, 0\]", add, "a", numpy.zeros((2, 0)))
        self.refused(r"shape \[\]", add, "a", numpy.zeros(()))
        fixed = numpy.zeros(2)
        fixed.flags.writeable = False
        self.refused("read-only", add, "a", fixed)
        self.refused("its type is to be fp32", add, "a", numpy.zeros(2), type="fp32")
        self.refused("types are int32", add, "a", [1, 2], type="int16")
        values = numpy.zeros(5)
        self.refused("has 2 offsets; 2 rows have 3", add, "a", values, offsets=[0, 5])
        self.refused("last offset is 6; there are 5 values", add, "a", values, offsets=[0, 2, 6])
        self.refused("row 1", add, "a", values, offsets=[0, 4, 3])
        self.refused("whole numbers", add, "a", values, offsets=[0, "x", 3])
        self.refused("whole numbers", add, "a", values, offsets=numpy.array([0, 1.5, 3]))
        self.refused(r"with offsets it must be \[values\]", add, "a", numpy.zeros((5, 1)), offsets=[0, 1, 2])
        self.refused("offsets go with an array", add, "a", [1, 2], offsets=[0, 1, 2])
        self.refused("has 3 rows; the batch has 2", add, "a", [1, 2, 3])
        self.refused("row 1 is int, and no str", add, "a", ["x", 1])
        self.refused("row 1: no int64", add, "a", [1, 1.5])
        self.refused("row 0: no int32", add, "ids", [[2**31], []])
        self.refused("row 1: no bool", add, "a", [True, 2])
        self.refused("row 1 is list, and no bytes", add, "a", [b"", [1]])
        self.refused("one str", add, "a", "xy")
        self.refused("bf16: give a tensor", add, "a", [1.0, 2.0], type="bf16")
        self.refused("has NoneType|has object", add, "a", [object(), 1])
        self.refused("zero character", add, "a\0", [1, 2])
        self.refused("not UTF-8", add, "a", ["x", "\udcff"])
        self.refused("a bool|not a bool", add, "a", numpy.array([0, 2], numpy.uint8).view(numpy.bool_))
        self.refused("rows", treadle.Batch, -1)
        self.refused("create", treadle.Batch, "x")
        self.refused("no columns", treadle.Batch.of, {})
        self.assertEqual(list(batch), [])

    def test_closed(self):
        batch = sample()
        with batch:
            pass
        for call in (
            lambda: len(batch),
            lambda: batch["ids"],
            lambda: batch.add("x", [1]),
            lambda: batch.meta["step"],
            lambda: batch[0:1],
            lambda: treadle.Batch.concat([batch]),
            lambda: sample().union(batch),
        ):
            with self.assertRaisesRegex(treadle.State, "the batch is closed"):
                call()
        self.assertIn("closed", repr(batch))

    def test_not_pickled(self):
        batch = sample()
        with self.assertRaisesRegex(TypeError, "save\\(\\) it in a folder"):
            pickle.dumps(batch)
        with self.assertRaisesRegex(TypeError, "tolist"):
            pickle.dumps(batch["ids"])

    def test_empty(self):
        batch = treadle.Batch.of({"uid": [], "ids": [], "score": numpy.zeros(0), "x": numpy.zeros((0, 3))})
        self.assertEqual((len(batch), batch["ids"].tolist(), batch["score"].numpy().shape), (0, [], (0,)))
        self.assertEqual((batch["ids"].width, batch["ids"].type), (None, "int32"))
        self.assertEqual(batch["x"].numpy().shape, (0, 3))
        self.assertEqual(batch["uid"].type, "text")

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_torch(self):
        import torch

        batch, values = treadle.Batch(2), torch.tensor([1.5, -0.0], dtype=torch.bfloat16)
        batch["a"] = values
        batch["b"] = torch.tensor([[1, 2], [3, 4]])
        batch.add("ids", torch.arange(4, dtype=torch.int32), offsets=torch.tensor([0, 1, 4]))
        self.assertEqual(batch["a"].type, "bf16")
        batch["a"].torch()[1] = 3
        self.assertEqual(values.tolist(), [1.5, 3])
        self.assertEqual(batch["a"].tolist(), [1.5, 3])
        self.assertEqual(batch["a"].numpy().dtype, numpy.uint16)
        self.assertEqual(batch["b"].torch().tolist(), [[1, 2], [3, 4]])
        self.assertEqual(torch.from_dlpack(batch["b"]).data_ptr(), batch["b"].torch().data_ptr())
        self.assertEqual(numpy.from_dlpack(batch["b"]).tolist(), [[1, 2], [3, 4]])
        self.assertEqual(batch["ids"].tolist(), [[0], [1, 2, 3]])
        self.refused("strides", batch.add, "x", torch.zeros(2, 2).t())
        self.refused("device meta", batch.add, "x", torch.zeros(2, device="meta"))
        self.refused("float16", batch.add, "x", torch.zeros(2, dtype=torch.float16))


if __name__ == "__main__":
    unittest.main()
