"""The numbers of verl's single_controller tests, on a real Ray."""

import unittest

import cluster
import numpy
import ray
import treadle
import treadle.ray as tr
import workers
from treadle.ray import ClassWithInitArgs, WorkerGroup


def setUpModule():
    cluster.start()


def tearDownModule():
    cluster.stop()


def batch(values, **meta):
    return treadle.Batch.of({"a": numpy.array(values)}, meta)


class Groups(unittest.TestCase):
    """Ends what a test starts."""

    def group(self, pool, cls, *arguments, **options):
        self.addCleanup(pool.close)
        made = WorkerGroup(pool, cls if hasattr(cls, "members") else ClassWithInitArgs(cls, *arguments), **options)
        self.addCleanup(made.close)
        return made

    def a(self, rows):
        return rows["a"].tolist()


class TestBasics(Groups):
    def test_basics(self):
        four = self.group(cluster.pool(4), ray.remote(workers.Basic), 2, worker_env={"test_key": "7"}, name_prefix="b")
        self.assertEqual(four.foo(3), [5, 5, 5, 5])
        self.assertEqual(four.foo(y=3), [5, 5, 5, 5])
        self.assertEqual(four.one_to_all(1, 2), [5] * 4)
        self.assertEqual(four.all_to_all([1, 2, 3, 4], [5, 6, 7, 8]), [8, 10, 12, 14])
        self.assertEqual(four.all_to_all([1, 2, 3, 4], y=[5, 6, 7, 8]), [8, 10, 12, 14])
        self.assertEqual(four.dp_compute([1, 2, 3, 4], [5, 6, 7, 8]), [8, 10, 12, 14])
        self.assertEqual(four.own([1, 2], [5, 6]), [8, 10, 8, 10])
        self.assertEqual(four.rank_zero(1, 2), 5)
        self.assertEqual(four.execute_all_sync("not_registered", [1, 2, 3, 4]), [1, 3, 5, 7])
        self.assertEqual(four.execute_rank_zero_sync("not_registered", 4), 4)
        self.assertEqual(ray.get(four.execute_all_async("foo", 1)), [3] * 4)
        self.assertEqual(four.execute_func_rank_zero(lambda worker, y: worker.x + y, 5), 7)
        names = ["RAY_LOCAL_WORLD_SIZE", "test_key", "WORLD_SIZE", "RANK", "WG_PREFIX", "WG_BACKEND", "HOME"]
        said = four.environment(names)
        self.assertEqual([one["RAY_LOCAL_WORLD_SIZE"] for one in said], ["4"] * 4)
        self.assertEqual([one["test_key"] for one in said], ["7"] * 4)
        self.assertEqual([one["RANK"] for one in said], ["0", "1", "2", "3"])
        self.assertEqual(
            {(one["WORLD_SIZE"], one["WG_PREFIX"], one["WG_BACKEND"]) for one in said}, {("4", "b", "ray")}
        )
        places = four.place()
        self.assertEqual([place[:2] for place in places], [(rank, 4) for rank in range(4)])
        self.assertEqual(len({place[2] for place in places}), 1)
        self.assertEqual(four.worker_names, [f"bBasic_0:{slot}" for slot in range(4)])
        self.refusals(four)
        again = WorkerGroup.from_detached(four.worker_names, ClassWithInitArgs(workers.Basic))
        self.assertEqual(again.foo(3), [5, 5, 5, 5])
        self.assertEqual(again.place(), places)

    def refusals(self, four):
        with self.assertRaisesRegex(ValueError, "worker_env may not override WORLD_SIZE"):
            self.group(cluster.pool(1), workers.Basic, worker_env={"WORLD_SIZE": "9"})
        with self.assertRaisesRegex(treadle.Refused, "argument 1 has 3 items; there are 4 workers"):
            four.dp_compute([1, 2, 3, 4], [5, 6, 7])
        with self.assertRaisesRegex(
            AttributeError, "'nothing' is not a registered method of the group's class, which has all"
        ):
            four.nothing()
        with self.assertRaisesRegex(treadle.Refused, "Basic has no method 'nothing'; registered are all_to_all"):
            four.execute_all_sync("nothing")
        with self.assertRaisesRegex(
            treadle.Refused, "own_wrong: dispatch_fn gave .1, 2. for an argument; it must give a"
        ):
            four.own_wrong()
        with self.assertRaisesRegex(treadle.Refused, "no worker is called 'gone'"):
            WorkerGroup.from_detached(["gone"], ClassWithInitArgs(workers.Basic))

    def test_nested(self):
        four = self.group(cluster.pool(4), workers.Nested, 2)
        self.assertEqual(four.both(), [(2, 2), (3, 3), (4, 4), (5, 5)])

    def test_register_refuses(self):
        for words, mode in (
            ("RANK_ZERO is a way to execute", tr.Dispatch.RANK_ZERO),
            ("Direct rollout call is forbidden.", tr.Dispatch.DIRECT_ROLLOUT_METHOD),
            ("no collect_fn", {"dispatch_fn": print}),
            ("dispatch_mode is 'DP'", "DP"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                tr.register(mode)
        with self.assertRaisesRegex(treadle.Refused, "execute_mode is 'FIRST'"):
            tr.register(execute_mode="FIRST")


class TestSizes(Groups):
    """Each way of dispatch, on 1, 2, 4 and 8 workers."""

    def test_sizes(self):
        for count in (1, 2, 4, 8):
            with self.subTest(workers=count):
                pool = cluster.pool(count, use_gpu=False)
                self.lists(self.group(pool, workers.Basic, 2), count)
                self.rows(self.group(pool, workers.Rows, 10), count)
                self.doCleanups()

    def lists(self, group, count):
        each = list(range(count))
        self.assertEqual(group.foo(3), [5] * count)
        self.assertEqual(group.one_to_all(1, 2), [5] * count)
        self.assertEqual(group.all_to_all(each, each), [2 * item + 2 for item in each])
        self.assertEqual(group.dp_compute(each, each), [2 * item + 2 for item in each])
        self.assertEqual(group.rank_zero(1, 2), 5)
        with self.assertRaisesRegex(treadle.Refused, f"argument 0 has {count + 1} items; there are {count} workers"):
            group.dp_compute([*each, 0], each)

    def rows(self, group, count):
        rows = list(range(3 * count))
        self.assertEqual(self.a(group.add(batch(rows))), [row + 10 + row // 3 for row in rows])
        future = group.twice(batch(rows))
        twice = [2 * row + 5 + row // 3 for row in rows]
        self.assertEqual(self.a(group.add(future)), [value + 10 + row // 3 for row, value in enumerate(twice)])
        self.assertEqual(self.a(future.get()), twice)
        self.assertEqual(group.metric(batch(rows)), [(3, 0)] * count)
        moved = group.execute_with_func_generator(
            lambda worker, part: workers.changed(part, lambda value: value + worker.x), batch(rows)
        )
        self.assertEqual(self.a(moved), [row + 10 for row in rows])
        group.auto_padding = True
        self.assertEqual(len(group.add(batch(rows[1:]))), len(rows) - 1)


class TestRows(Groups):
    def test_two_workers(self):
        two = self.group(cluster.pool(2), workers.Rows, 10)
        self.assertEqual(self.a(two.add(batch([0, 1, 2, 3]))), [10, 11, 13, 14])
        future = two.twice(batch([0, 1, 2, 3]))
        self.assertIsInstance(future, tr.Future)
        self.assertEqual(self.a(future.get()), [5, 7, 10, 12])
        self.chained(two)
        self.kinds(two)
        self.wrong(two)

    def chained(self, two):
        """Futures go on unresolved."""
        first = two.twice(batch([0, 1, 2, 3], step=3))  # 5 7 10 12
        second = two.twice(first)  # 15 19 26 30
        self.assertEqual(self.a(two.add(second)), [25, 29, 37, 41])
        self.assertEqual(self.a(two.late(second)), [15.5, 19.5, 26.5, 30.5])
        self.assertEqual(second.get().meta["step"], 3)
        self.assertEqual(two.total(second).get(), [34, 56])
        self.assertEqual(two.own_item(two.total(second)).get(), [34, 1056])
        self.assertEqual(self.a(two.difference(second, batch([1, 2, 3, 4]))), [14, 17, 23, 26])
        self.assertEqual(self.a(two.difference(other=first, one=second)), [10, 12, 16, 18])
        with self.assertRaisesRegex(treadle.Peer, "expecting all arg share same length"):
            two.difference(second, batch([1, 2]))
        two.auto_padding = True
        padded = two.twice(batch([0, 1, 2]))  # 5 7 | 10
        self.assertEqual(self.a(two.add(padded)), [15, 17, 21])
        self.assertEqual(two.total(padded).get(), [12, 20])  # the last row twice
        two.pad_with_first = True
        self.assertEqual(two.total(padded).get(), [12, 15])
        two.auto_padding = two.pad_with_first = False
        with self.assertRaisesRegex(treadle.Peer, "rank . of .* failed in 'add'.*only support equal chunk: 3 rows"):
            two.add(padded)
        with self.assertRaisesRegex(
            treadle.Peer, "its argument, the result of 'raises', failed: .*ValueError: no such row"
        ):
            two.add(two.raises(batch([1, 2])))
        with self.assertRaisesRegex(TypeError, "not inside of another object"):
            two.execute_rank_zero_sync("metric", {"it": second})

    def kinds(self, two):
        more = two.execute_with_func_generator(
            lambda worker, rows: workers.changed(rows, lambda value: value + worker.x), batch([1, 2])
        )
        self.assertEqual(self.a(more), [11, 12])
        self.assertEqual(two.metric(batch([1, 2, 3, 4])), [(2, 0), (2, 0)])
        columns = treadle.Batch.of(
            {
                "text": ["one", "", "drei", "né"],
                "bytes": [b"\0", b"", b"12", b"3"],
                "ids": [[1], [], [2, 3], [4]],
                "wide": numpy.arange(8, dtype=numpy.float32).reshape(4, 2),
                "flag": [True, False, True, True],
            },
            {"k": {"deep": [1, None]}},
        )
        back = two.columns(columns)
        for name in columns.columns:
            self.assertEqual(back[name].tolist(), columns[name].tolist())
            self.assertEqual((back[name].type, back[name].width), (columns[name].type, columns[name].width))
        self.assertEqual(dict(back.meta), dict(columns.meta))

    def wrong(self, two):
        with self.assertRaisesRegex(treadle.Refused, "only support equal chunk: 3 rows do not divide into 2"):
            two.add(batch([1, 2, 3]))
        with self.assertRaisesRegex(treadle.Refused, "must be a batch"):
            two.add([1, 2])
        two.auto_padding = True
        with self.assertRaisesRegex(
            treadle.Peer, "rank 1 of .*worker 1 gave 1 rows back for 2: among them are rows of pad"
        ):
            two.fewer(batch([1, 2, 3]))
        with self.assertRaisesRegex(
            treadle.Peer, r"rank 1 of '.*' \(Rows\), node .* failed in 'fails': ValueError: row 17"
        ):
            two.fails(batch([1, 2])).get(60)  # rank 0 is not waited for

    def test_padding(self):
        four = self.group(cluster.pool(4), workers.Rows, 0)
        four.auto_padding = True
        for rows in range(4, 20):
            chunk = -(-rows // 4)
            given = four.whole(batch(list(range(rows))))
            self.assertEqual(given["rows"].tolist(), [chunk] * rows)
        for rows in (10, 1, 8):
            self.assertEqual(len(four.columns(batch(list(range(rows))))), rows)
        self.assertEqual(four.metric(batch([0] * 10)), [(3, 0), (3, 0), (3, 0), (3, 2)])
        own = self.group(cluster.pool(4), workers.OwnRows)
        own.auto_padding = True
        self.assertEqual(own.add(workers.Own([1, 2, 3, 4, 5])).values, [1, 2, 103, 104, 205])
        self.assertEqual(own.add(workers.Own([1])).values, [1])

    def test_meshes(self):
        eight = self.group(cluster.pool(8), workers.Meshes)
        self.assertEqual(self.a(eight.generate(batch([1, 2]))), [1, 3])
        self.assertEqual(self.a(eight.train(batch([3, 4]))), [11, 16])
        self.assertEqual(self.a(eight.train(eight.generate_later(batch([1, 2])))), [9, 15])
        with self.assertRaisesRegex(treadle.Refused, "mesh 'other' is not registered by worker 0 of 8"):
            eight.nowhere(batch([1, 2]))
        with self.assertRaisesRegex(treadle.Peer, "mesh_name infer has been registered: rank 0 has dp rank 0 in it"):
            eight.execute_rank_zero_sync("again")


if __name__ == "__main__":
    unittest.main()
