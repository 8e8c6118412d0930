"""Dispatch and collect, with verl's numbers (tests/single_controller), through the C functions."""

import unittest

import treadle


class Worker:
    """4 of them, with x = 2 (verl's basics), or 2 with x = 10."""

    def __init__(self, rank, x=2):
        self.rank, self.x = rank, x

    def foo(self, x):
        return self.x + x

    def both(self, x, y):
        return self.x + y + x

    def add(self, batch):
        return self.changed(batch, lambda a: a + self.rank + self.x)

    def twice(self, batch):
        return self.changed(batch, lambda a: 2 * a + 5 + self.rank)

    def changed(self, batch, function):
        return treadle.Batch.of({"a": [function(a) for a in batch["a"].tolist()]})


def run(workers, method, call):
    results = []
    for worker, arguments in zip(workers, call.divided()):
        results.append(getattr(worker, method)(*arguments) if arguments is not None else None)
    return results


class TestDispatch(unittest.TestCase):
    def refused(self, words, *arguments, **named):
        with self.assertRaisesRegex(treadle.Refused, words):
            treadle.Dispatch(*arguments, **named)

    def test_rows_elsewhere(self):
        """Numbers of rows alone divide a call as batches do."""
        rows = treadle.dispatch.Rows(10)
        call = treadle.Dispatch("DP_COMPUTE_PROTO", [rows, treadle.Batch(10)], 4, auto_padding=True)
        self.assertEqual([share[0] for share in call.divided()], [range(k, k + 3) for k in (0, 3, 6, 9)])
        self.assertEqual([share.padding for share in call.shares], [0, 0, 0, 2])
        self.refused("expecting all arg share same length", "DP_COMPUTE_PROTO", [rows, treadle.Batch(9)], 2)

    def test_basics(self):
        four = [Worker(rank) for rank in range(4)]
        call = treadle.Dispatch("ALL_TO_ALL", [3], 4)
        self.assertEqual(run(four, "foo", call), [5, 5, 5, 5])
        self.assertTrue(call.list and call.shares[3].whole)
        self.assertEqual(run(four, "both", treadle.Dispatch("ONE_TO_ALL", [1, 2], 4)), [5] * 4)
        lists = [[1, 2, 3, 4], [5, 6, 7, 8]]
        self.assertEqual(run(four, "both", treadle.Dispatch("ALL_TO_ALL", lists, 4)), [8, 10, 12, 14])
        self.assertEqual(run(four, "both", treadle.Dispatch("DP_COMPUTE", lists, 4)), [8, 10, 12, 14])
        alone = treadle.Dispatch("ALL_TO_ALL", [1, 2], 4, execute="RANK_ZERO")
        self.assertEqual(run(four, "both", alone), [5, None, None, None])
        self.assertFalse(alone.list)
        self.refused("argument 1 has 3 items; there are 4", "DP_COMPUTE", [[1] * 4, [1] * 3], 4)
        self.refused("must be a list", "DP_COMPUTE", [3], 4)
        self.refused("RANK_ZERO is a way to execute", "RANK_ZERO", [], 4)
        self.refused("Direct rollout call is forbidden.", "DIRECT_ROLLOUT_METHOD", [], 4)
        self.refused("RANK_ZERO runs worker 0 alone", "DP_COMPUTE", lists, 4, execute="RANK_ZERO")
        self.refused("kind is 'PROTO'", "PROTO", [], 4)
        self.refused("execute is 'ONE'", "ALL_TO_ALL", [], 4, execute="ONE")
        self.refused("0 workers", "ALL_TO_ALL", [], 0)
        self.refused("workers is 4294967297", "ALL_TO_ALL", [], 2**32 + 1)

    def test_proto(self):
        two = [Worker(rank, 10) for rank in range(2)]
        batch = treadle.Batch.of({"a": [0, 1, 2, 3]})
        call = treadle.Dispatch("DP_COMPUTE_PROTO", [batch], 2)
        self.assertEqual([share.rows for share in call.shares], [range(2), range(2, 4)])
        self.assertEqual(call.collect(run(two, "add", call))["a"].tolist(), [10, 11, 13, 14])
        self.assertEqual(call.collect(run(two, "twice", call))["a"].tolist(), [5, 7, 10, 12])
        call = treadle.Dispatch("DP_COMPUTE_METRIC", [batch], 2)
        back = call.collect([part for part, in call.divided()])
        self.assertEqual([part["a"].tolist() for part in back], [[0, 1], [2, 3]])
        call = treadle.Dispatch("DP_COMPUTE_PROTO_WITH_FUNC", [len, batch], 2)
        self.assertEqual([function(part) for function, part in call.divided()], [2, 2])
        self.refused("first argument must be a function", "DP_COMPUTE_PROTO_WITH_FUNC", [batch], 2)
        self.refused("only support equal chunk", "DP_COMPUTE_PROTO", [batch], 3)
        other = treadle.Batch.of({"a": [1, 2]})
        self.refused("expecting all arg share same length", "DP_COMPUTE_PROTO", [batch, other], 2)
        self.refused("argument 0 is a list", "DP_COMPUTE_PROTO", [[1, 2]], 2)

    def test_auto_padding(self):
        for rows in [*range(4, 20), 1]:
            batch = treadle.Batch.of({"a": list(range(rows))})
            call = treadle.Dispatch("DP_COMPUTE_PROTO", [batch], 4, auto_padding=True)
            parts = [part for part, in call.divided()]
            self.assertEqual([len(part) for part in parts], [-(-rows // 4)] * 4)
            self.assertEqual(sum((part["a"].tolist() for part in parts), [])[rows:], [rows - 1] * call.padding)
            self.assertEqual(call.collect(parts)["a"].tolist(), list(range(rows)))
            self.assertEqual(len(batch), rows)
        call = treadle.Dispatch("DP_COMPUTE_PROTO", [batch[:1]], 4, auto_padding=True, pad_with_first=True)
        self.assertEqual((call.padding, call.rows, call.chunks), (3, 1, 4))
        with self.assertRaisesRegex(treadle.Refused, "rows of padding"):
            call.collect([batch.repeat(2)] * 4)
        with self.assertRaisesRegex(treadle.Refused, "3 results of 4 workers"):
            call.collect([batch] * 3)
        with self.assertRaisesRegex(treadle.Refused, "worker 0 gave nothing back"):
            call.collect([None] * 4)

    def test_mesh(self):
        meshes = treadle.Meshes(8)
        for rank in range(8):
            pp, dp, tp = rank // 4, rank // 2 % 2, rank % 2
            meshes.register("infer", rank, rank // 4, rank % 4 == 0)
            meshes.register("train", rank, dp, tp == 0 and pp == 1)
        self.assertEqual(meshes.dp_size("train"), 2)

        def called(mesh, numbers, change):
            call = treadle.Dispatch("ND_MESH", [treadle.Batch.of({"a": numbers})], 8, meshes=meshes, mesh=mesh)
            results = [change(rank, part["a"][0]) for rank, (part,) in enumerate(call.divided())]
            return call.collect([treadle.Batch.of({"a": [number]}) for number in results])["a"].tolist()

        self.assertEqual(called("infer", [1, 2], lambda r, a: a + (r % 4 + 1) * (r // 4)), [1, 3])
        self.assertEqual(
            called("train", [3, 4], lambda r, a: a + (r % 2 + 1) * (r // 2 % 2 + 2) * (r // 4 + 3)), [11, 16]
        )
        with self.assertRaisesRegex(treadle.Refused, "mesh_name train has been registered"):
            meshes.register("train", 3, 0, True)
        with self.assertRaisesRegex(treadle.Refused, "mesh 'critic' is not registered"):
            meshes.dp_size("critic")
        with self.assertRaisesRegex(treadle.Refused, "dp_rank is 4294967296"):
            meshes.register("critic", 3, 2**32, True)
        self.refused("needs meshes", "ND_MESH", [], 8)


if __name__ == "__main__":
    unittest.main()
