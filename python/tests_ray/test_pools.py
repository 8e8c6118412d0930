"""Split and merged pools, colocated classes, and what is refused; with verl's numbers."""

import unittest

import cluster
import numpy
import ray
import treadle
import treadle.ray as tr
import workers
from test_calls import Groups, batch
from treadle.ray import ClassWithInitArgs, create_colocated_worker_cls, merge_resource_pool, split_resource_pool


def setUpModule():
    cluster.start()


def tearDownModule():
    cluster.stop()


class TestPools(Groups):
    def test_split_by_size(self):
        pool = cluster.pool(4, 4)
        first, second = split_resource_pool(pool, 4)
        zeros = [self.group(part, workers.Zeros) for part in (first, second)]
        self.assertEqual(self.a(zeros[0].zeros(batch([0] * 8))), [0, 0, 1, 1, 2, 2, 3, 3])
        self.assertEqual(self.a(zeros[1].zeros(batch([100] * 8))), [100, 100, 101, 101, 102, 102, 103, 103])
        devices = [d for group in zeros for (d,) in group.execute_all_sync("get_visible_devices")]
        self.assertEqual(len(set(devices)), 8)

    def test_split_by_counts(self):
        pool = cluster.pool(2, 2, 2, 2)
        two, six = split_resource_pool(pool, [2, 6])
        self.assertEqual((two.store, six.store), ([2], [2, 2, 2]))
        group = self.group(six, workers.Basic)
        self.assertEqual([rank for rank, _, _ in group.place()], [0, 1, 2, 3, 4, 5])
        self.assertEqual(group.worker_names[-1].split("_")[-1], "2:1")
        group.close()
        pool.close()
        crossing = split_resource_pool(cluster.pool(4, 4), [2, 6])
        self.assertEqual([part.store for part in crossing], [[2], [2, 4]])
        groups = [self.group(part, workers.Zeros) for part in crossing]
        self.assertEqual([self.a(g.zeros(batch([0] * g.world_size))) for g in groups], [[0, 1], [0, 1, 2, 3, 4, 5]])

    def test_split_again(self):
        parts = split_resource_pool(cluster.pool(4, 4), [2, 4, 2])
        nested = [parts[0], *split_resource_pool(parts[1], 1), parts[2]]
        self.assertEqual([part.world_size for part in nested], [2, 1, 1, 1, 1, 2])
        groups = [self.group(part, workers.Zeros) for part in nested]
        self.assertEqual([self.a(g.zeros(batch([0, 0]))) for g in groups], [[0, 1]] + [[0, 0]] * 4 + [[0, 1]])

    def test_merge(self):
        first, second = cluster.pool(4), cluster.pool(4)
        self.addCleanup(second.close)
        reward = self.group(first, workers.Basic)
        both = merge_resource_pool(first, second)
        self.assertEqual((both.world_size, both.store), (8, [4, 4]))
        reference = self.group(second, workers.Basic)
        merged = self.group(both, workers.Basic)
        of_first, of_second = ({d for (d,) in group.devices()} for group in (reward, reference))
        self.assertEqual((len(of_first), len(of_second), of_first & of_second), (4, 4, set()))
        self.assertEqual(merged.devices(), reward.devices() + reference.devices())

    def test_refused(self):
        cluster.wait_until_free(GPU=8, CPU=8)
        pool = cluster.pool(4, 4)
        for words, call in (
            ("split_size must be a divisor of world_size: 3, 8", lambda: split_resource_pool(pool, 3)),
            (r"split_size must sum up to world_size: \[2, 5\]", lambda: split_resource_pool(pool, [2, 5])),
            (r"split_size must sum up to world_size: \[0.25, 0.75\]", lambda: split_resource_pool(pool, [0.25, 0.75])),
            ("cannot be merged: they share 8 slots", lambda: merge_resource_pool(pool, pool)),
            ("max_colocate_count is 3 and 1", lambda: merge_resource_pool(pool, cluster.pool(4, max_colocate_count=1))),
            ("entry 1 has 0 slots; at least 1", lambda: cluster.pool(4, 0)),
            ("has no entries", lambda: cluster.pool()),
            ("max_colocate_count is 0", lambda: cluster.pool(1, max_colocate_count=0)),
            ("0.0001 processors a slot for 3", lambda: cluster.pool(1, cpus=0.0001)),
            (
                "role 'Critic' is in pool 'b', which is not there; pools: 'a'",
                lambda: manager({"a": [1]}, {"Critic": "b"}),
            ),
            ("pool 'a' has no role", lambda: manager({"a": [1]}, {})),
            (
                "'env' is in no pool; roles: Critic",
                lambda: manager({"a": [1]}, {"Critic": "a"}).get_resource_pool("env"),
            ),
            (
                "pool 'pool': Total available GPUs 8 is less than total desired GPUs 9; Ray has 1 nodes with 8",
                lambda: cluster.pool(4, 5).get_placement_groups(),
            ),
            (
                "all pools: Total available GPUs 8 is less than total desired GPUs 12",
                lambda: manager({"a": [8], "b": [4]}, {"Actor": "a", "Critic": "b"}).create_resource_pool(),
            ),
            (
                "no node has room for the 8 slots of '.*_entry0', which need 16 CPU, 8 GPU on one node",
                lambda: cluster.pool(8, cpus=2.0).get_placement_groups(),
            ),
            ("'close' of Closing is a name of WorkerGroup", lambda: self.group(pool, workers.Closing)),
            ("detached workers need a detached pool", lambda: self.group(pool, workers.Basic, detached=True)),
            ("is not a class", lambda: ClassWithInitArgs(print)),
            ("no classes", lambda: create_colocated_worker_cls({})),
            ("'a' is type; give ClassWithInitArgs", lambda: create_colocated_worker_cls({"a": workers.Basic})),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                call()

    def test_full_slot(self):
        pool = cluster.pool(1, max_colocate_count=1)
        first = self.group(pool, workers.Basic)
        with self.assertRaisesRegex(
            treadle.Refused, "slot 0 of pool 'pool' has 1 worker groups; max_colocate_count is 1"
        ):
            self.group(pool, workers.Basic)
        first.close()
        with self.assertRaisesRegex(treadle.State, "'foo': the group .* is closed"):
            first.foo(1)

    def test_colocated(self):
        """Roles in one process give what groups of their own give, to the bit."""
        values = batch(numpy.arange(8) / 7)
        critic, reference = ClassWithInitArgs(workers.Rows, 0.1), ClassWithInitArgs(workers.Rows, 0.3)
        pool = cluster.pool(4)
        both = self.group(pool, create_colocated_worker_cls({"critic": critic, "reference": reference}))
        roles = both.spawn({"critic": 1, "reference": 2})
        apart = {"critic": self.group(pool, workers.Rows, 0.1), "reference": self.group(pool, workers.Rows, 0.3)}
        for role, group in roles.items():
            expected = apart[role].add(values)["a"].numpy().tobytes()
            self.assertEqual(group.add(values)["a"].numpy().tobytes(), expected)
            self.assertEqual(getattr(both, f"{role}_add")(values)["a"].numpy().tobytes(), expected)
            self.assertEqual(self.a(group.add(group.twice(values))), self.a(apart[role].add(apart[role].twice(values))))
        self.assertEqual(roles["critic"].workers, roles["reference"].workers)
        self.assertEqual(roles["critic"].execute_all_sync("metric", batch([1])), [(1, 0)] * 4)
        for words, call in (
            ("spawn: no class 'actor'; classes: critic, reference", lambda: both.spawn(["actor"])),
            ("spawn: this group has one class", lambda: roles["critic"].spawn(["critic"])),
            ("'add': the group has critic, reference", lambda: both.execute_all_sync("add", 1)),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                call()


def manager(spec, mapping):
    return tr.ResourcePoolManager(spec, mapping, cpus=cluster.CPUS)


if __name__ == "__main__":
    unittest.main()
