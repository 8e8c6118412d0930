"""Workers that another controller made and left, and the example."""

import os
import subprocess
import sys
import tempfile
import unittest

import cluster
import ray
import treadle
import treadle.ray as tr
import workers
from treadle.ray import ClassWithInitArgs, WorkerGroup

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)


class TestDetached(unittest.TestCase):
    def setUp(self):
        cluster.start(cpus=2, gpus=2)
        self.addCleanup(cluster.stop)

    def test_found_again(self):
        said = run(os.path.join(HERE, "detached.py"), ray.get_runtime_context().gcs_address)
        self.assertEqual(said.returncode, 0, said.stderr)
        names = said.stdout.split()
        self.assertEqual(names, ["keptBasic_0:0", "keptBasic_0:1"])
        group = WorkerGroup.from_detached(names, ClassWithInitArgs(workers.Basic))
        self.assertEqual(group.foo(2), [42, 42])
        self.assertEqual([place[:2] for place in group.place()], [(0, 2), (1, 2)])
        for node in group.nodes:
            self.assertRegex(node, r"node [0-9.]+ \(\w{8}\)")
        group.close()
        ray.util.remove_placement_group(ray.util.get_placement_group("kept_entry0"))

    def test_node_without_the_wheel(self):
        """What its processes find in place of treadle does not import."""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "treadle.py"), "w") as file:
                file.write("raise ModuleNotFoundError('No module named treadle here')")
            pool = cluster.pool(1)
            with self.assertRaisesRegex(
                treadle.Peer, "rank 0 of 'w' .* died in 'start': .*No module named treadle here"
            ):
                WorkerGroup(pool, ClassWithInitArgs(workers.Basic), name_prefix="w", worker_env={"PYTHONPATH": folder})

    def test_default_pool(self):
        """As verl's: a slot has a processor for each worker group."""
        pool = tr.ResourcePool([1])
        self.assertEqual((pool.cpus, pool.max_colocate_count, pool.use_gpu), (10, 10, True))
        self.assertEqual(pool.worker_share(), {"num_cpus": 1, "num_gpus": 0.1})


class TestVersion(unittest.TestCase):
    def test_not_tried(self):
        said = run("-W", "error", "-c", "import ray; ray.__version__ = '9.9'; import treadle.ray")
        self.assertIn("UserWarning: treadle.ray was not tried with Ray 9.9, but with 2.60.0", said.stderr)
        self.assertEqual(run("-W", "error::UserWarning", "-c", "import treadle.ray").stderr, "")

    def test_without_a_cluster(self):
        with self.assertRaisesRegex(
            treadle.State, r"pool 'pool': this process has no Ray cluster; call ray.init\(\) before"
        ):
            tr.ResourcePool([1]).get_placement_groups()


class TestExample(unittest.TestCase):
    def test_controller(self):
        example = os.path.join(HERE, "..", "..", "examples", "python", "07_controller.py")
        said = run(example, "5")
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        lines = said.stdout.splitlines()
        self.assertEqual(lines[0], "rank 1 did 'warm up', rank 3 did 'look around'")
        scores = [float(line.split()[3].rstrip(",")) for line in lines[1:]]
        self.assertEqual(len(scores), 5)
        self.assertEqual(scores, sorted(scores))
        self.assertGreater(scores[-1], scores[0])


if __name__ == "__main__":
    unittest.main()
