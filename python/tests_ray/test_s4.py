"""verl's example of four, two and one nodes: 7 nodes with 4 slots each in place of 8, as 7 of Ray's node processes."""

import os
import shutil
import tempfile
import unittest

import cluster  # noqa: F401  which sets Ray's environment
import ray
import treadle
import treadle.ray as tr
import workers
from ray.cluster_utils import Cluster
from test_calls import Groups
from treadle.ray import ClassWithInitArgs, WorkerGroup

SLOTS = 4
POLICY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "sequence", "policy")
SPEC = {"actor_rollout": [SLOTS] * 4, "critic": [SLOTS] * 2, "reward": [SLOTS]}
MAPPING = {"ActorRollout": "actor_rollout", "Critic": "critic", "RewardModel": "reward"}


class TestSevenNodes(Groups):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        os.environ["RAY_TMPDIR"] = cls.folder  # also of the file that names the cluster
        os.makedirs(os.path.join(cls.folder, "ray"))
        node = {"num_cpus": SLOTS, "object_store_memory": 80 << 20, "include_dashboard": False}
        cls.cluster = Cluster(initialize_head=True, head_node_args=node)
        for _ in range(6):
            cls.cluster.add_node(num_cpus=SLOTS, object_store_memory=80 << 20)
        cls.cluster.wait_for_nodes()
        ray.init(address=cls.cluster.address, namespace="tests", log_to_driver=False)

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()
        cls.cluster.shutdown()
        del os.environ["RAY_TMPDIR"]
        shutil.rmtree(cls.folder, ignore_errors=True)

    def test_pools(self):
        manager = tr.ResourcePoolManager(SPEC, MAPPING, use_gpu=False, cpus=1)
        self.assertEqual(manager.get_n_gpus(), 7 * SLOTS)
        more = tr.ResourcePoolManager({**SPEC, "more": [1]}, {**MAPPING, "RefPolicy": "more"}, use_gpu=False, cpus=1)
        with self.assertRaisesRegex(
            treadle.Refused,
            "all pools: Total available CPUs 28 is less than total desired CPUs 29; Ray has 7 nodes with 4 CPU",
        ):
            more.create_resource_pool()
        with self.assertRaisesRegex(
            treadle.Refused, "no node has room for the 5 slots of 'pool_.*', which need 5 CPU on one"
        ):
            tr.ResourcePool([5], False, cpus=1).get_placement_groups()
        manager.create_resource_pool()
        self.addCleanup(manager.close)
        nodes = [node for name in SPEC for node in manager.resource_pool_dict[name].nodes()]
        entries = [set(nodes[first : first + SLOTS]) for first in range(0, 7 * SLOTS, SLOTS)]
        self.assertEqual([len(entry) for entry in entries], [1] * 7)  # STRICT_PACK: an entry is on one node
        self.assertEqual(len(set.union(*entries)), 7)
        self.strategies(manager)
        self.workers(manager)
        self.roles(manager)

    def strategies(self, manager):
        for name, counts in SPEC.items():
            groups = manager.resource_pool_dict[name].get_placement_groups()
            self.assertEqual([group.bundle_count for group in groups], counts)
            for group in groups:
                self.assertEqual(ray.util.placement_group_table(group)["strategy"], "STRICT_PACK")

    def workers(self, manager):
        """Ranks follow entries and slots, and roles on pools of their own work at the same time."""
        groups = {}
        for role in MAPPING:
            pool = manager.get_resource_pool(role)
            groups[role] = WorkerGroup(pool, ClassWithInitArgs(workers.Slow), name_prefix=role)
            self.addCleanup(groups[role].close)
            self.assertEqual(groups[role].world_size, pool.world_size)
            self.assertEqual([place[:2] for place in groups[role].execute_all_sync("place")], self.ranks(pool))
            ids = [place[2] for place in groups[role].execute_all_sync("place")]
            for first in range(0, pool.world_size, SLOTS):
                self.assertEqual(len(set(ids[first : first + SLOTS])), 1)
            self.assertEqual(len(set(ids)), pool.world_size // SLOTS)
        spans = [future.get() for future in [groups[role].sleep(2.0) for role in ("Critic", "RewardModel")]]
        began = [max(first for first, _ in ranks) for ranks in spans]
        ended = [min(last for _, last in ranks) for ranks in spans]
        self.assertLess(max(began), min(ended))

    def roles(self, manager):
        """The built-in ones need one node."""
        pool = manager.get_resource_pool("Critic")
        critic = WorkerGroup(pool, ClassWithInitArgs(tr.Critic, POLICY, "megatron:tp=1"))
        self.addCleanup(critic.close)
        with self.assertRaisesRegex(treadle.Peer, "Refused: Critic: its pool is on 2 nodes; the built-in engines need"):
            critic.init_model()

    def ranks(self, pool):
        return [(rank, pool.world_size) for rank in range(pool.world_size)]


if __name__ == "__main__":
    unittest.main()
