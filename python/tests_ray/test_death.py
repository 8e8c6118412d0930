"""Workers that die or fail: who waits is told which rank, where and in which method."""

import os
import signal
import subprocess
import sys
import threading
import unittest

import cluster
import treadle
import workers
from test_calls import Groups
from treadle.ray import ClassWithInitArgs, create_colocated_worker_cls


def setUpModule():
    cluster.start()


def tearDownModule():
    cluster.stop()


class TestDeath(Groups):
    def test_in_a_call(self):
        three = self.group(cluster.pool(3), workers.Slow, name_prefix="critic")
        with self.assertRaisesRegex(
            treadle.Peer, r"rank 2 of 'critic' \(Slow\), node [0-9.]+ \(\w{8}\), died in 'die': "
        ):
            three.die(2)
        with self.assertRaisesRegex(treadle.Peer, "rank 2 of 'critic'.*died in 'pid'"):
            three.pid()

    def test_constructor(self):
        with self.assertRaisesRegex(
            treadle.Peer, r"rank 1 of 'b' \(Broken\), node .*, failed in '__init__': OSError: no such mo"
        ):
            self.group(cluster.pool(2), workers.Broken, name_prefix="b")

    def test_timeout(self):
        two = self.group(cluster.pool(2), workers.Slow, name_prefix="slow")
        future = two.sleep(600)
        with self.assertRaisesRegex(treadle.Timeout, r"'slow' \(Slow\): ranks 0, 1 have not ended 'sleep' in 0.2 s"):
            future.get(0.2)
        self.assertFalse(future.ready())

    def test_watched(self):
        two = self.group(cluster.pool(2), workers.Slow, name_prefix="actor")
        pids = two.pid()
        told, said = threading.Event(), []
        two.watch(0.1, lambda sentence: (said.append(sentence), told.set()))
        with self.assertRaisesRegex(treadle.State, "watched already"):
            two.watch()
        future = two.sleep(600)
        os.kill(pids[1], signal.SIGKILL)
        self.assertTrue(told.wait(60))
        self.assertRegex(said[0], r"rank 1 of 'actor' \(Slow\), node .*, died in 'sleep': ")
        with self.assertRaisesRegex(treadle.Peer, "rank 1 of 'actor'.*died in 'sleep'"):
            future.get()

    def controller(self, *words):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watched.py")
        done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, timeout=200)
        cluster.remove(done.stdout.split()[0])
        return done

    def test_controller_ends(self):
        """By SIGABRT, while it does something else."""
        done = self.controller()
        self.assertEqual(done.returncode, -signal.SIGABRT, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"treadle: rank 1 of 'critic' \(Slow\), node .*, died in 'sleep': ")

    def test_controller_is_done(self):
        """What it ends itself has not died."""
        done = self.controller("end")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("treadle: ", done.stderr)

    def test_closed_while_watched(self):
        pool = cluster.pool(2)
        classes = {"a": ClassWithInitArgs(workers.Slow), "b": ClassWithInitArgs(workers.Slow)}
        both = self.group(pool, create_colocated_worker_cls(classes))
        said = []
        role = both.spawn(["a"])["a"]
        role.watch(0.01, said.append)
        both.close()
        role._watch._thread.join(60)
        self.assertEqual((said, role._watch._thread.is_alive()), ([], False))


if __name__ == "__main__":
    unittest.main()
