"""A raylet, Ray's process of a node, that is killed or stopped: who waits for workers of its node is told which."""

import os
import signal
import tempfile
import unittest

import cluster
import ray
import treadle
import treadle.ray as tr
import workers
from ray.cluster_utils import Cluster
from test_calls import Groups
from treadle.ray import ClassWithInitArgs, WorkerGroup


class TestRaylets(Groups):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self.addCleanup(cluster.remove, self.folder)
        os.environ["RAY_TMPDIR"] = self.folder
        self.addCleanup(os.environ.pop, "RAY_TMPDIR")
        os.makedirs(os.path.join(self.folder, "ray"))
        node = {"num_cpus": 1, "object_store_memory": 80 << 20}
        self.cluster = Cluster(
            initialize_head=True, head_node_args={**node, "include_dashboard": False, "_system_config": cluster.SOON}
        )
        self.addCleanup(self.cluster.shutdown)
        other = self.cluster.add_node(**node)
        self.cluster.wait_for_nodes()
        ray.init(address=self.cluster.address, namespace="tests", log_to_driver=False)
        self.addCleanup(ray.shutdown)
        self.raylets = {one.node_id: one.all_processes["raylet"][0].process for one in (self.cluster.head_node, other)}

    def ends(self, number):
        """Two pools, of which each fills a node: the one that is on the second node dies."""
        pools = [tr.ResourcePool([2], use_gpu=False, cpus=0.45, max_colocate_count=1) for _ in range(2)]
        groups = [
            WorkerGroup(pool, ClassWithInitArgs(workers.Slow), name_prefix=f"role{i}") for i, pool in enumerate(pools)
        ]
        head = self.cluster.head_node.node_id
        far = next(i for i, pool in enumerate(pools) if pool.node_ids()[0] != head)
        future = groups[far].sleep(600)
        near = groups[1 - far].sleep(0.1)
        raylet = self.raylets[pools[far].node_ids()[0]]
        os.kill(raylet.pid, number)
        if number == signal.SIGSTOP:
            self.addCleanup(raylet.kill)
        said = rf"rank [01] of 'role{far}' \(Slow\), node [0-9.]+ \({pools[far].node_ids()[0][:8]}\), died in 'sleep': "
        with self.assertRaisesRegex(treadle.Peer, said):
            future.get(200)
        self.assertEqual(len(near.get(100)), 2)  # those of the other node go on

    def test_killed(self):
        self.ends(signal.SIGKILL)

    def test_stopped(self):
        self.ends(signal.SIGSTOP)


if __name__ == "__main__":
    unittest.main()
