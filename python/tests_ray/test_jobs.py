"""`ray job submit -- python -m treadle.ray train` on a head with Ray's dashboard, of ray[default] (JOBS=1)."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import cluster
from test_train import CONFIG, LONG, POOLS, SOURCE, keys, running

from treadle.command import program


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def processes(folder):
    """Of a Ray whose folder that is."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        if folder.encode() in words and int(name) != os.getpid():
            found.append(int(name))
    return found


@unittest.skipUnless(importlib.util.find_spec("aiohttp"), "Ray's dashboard is not installed: JOBS=1")
class TestJobs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self.addCleanup(cluster.remove, self.folder)
        self.addCleanup(self.end)
        self.data = f"{self.folder}/data-and-run"
        os.mkdir(self.data)
        made = [program(), "data", "sequence", "--out", f"{self.data}/data", "--noise", "0.3"]
        subprocess.run(made, check=True, capture_output=True)
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        head = ["start", "--head", f"--port={free_port()}", f"--dashboard-port={port}", f"--temp-dir={self.folder}/ray"]
        agent = f"--dashboard-agent-listen-port={free_port()}"
        self.ray(*head, agent, "--num-cpus=4", f"--object-store-memory={100 << 20}")
        until = time.monotonic() + 100
        while True:  # the dashboard comes a little later
            try:
                self.job("list")
                break
            except AssertionError:
                if time.monotonic() > until:
                    raise
                time.sleep(1)

    def end(self):
        """`ray stop` would end every Ray of this machine."""
        for number in (15, 9):
            for process in processes(f"{self.folder}/ray"):
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    pass
            until = time.monotonic() + 10
            while processes(f"{self.folder}/ray") and time.monotonic() < until:
                time.sleep(0.1)

    def ray(self, *words):
        command = [os.path.join(os.path.dirname(sys.executable), "ray"), *words]
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        done = subprocess.run(
            command, cwd=SOURCE, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def job(self, word, *words):
        return self.ray("job", word, "--address", self.address, *words)

    def train(self, steps):
        words = [os.path.join(SOURCE, CONFIG), *POOLS, *keys(self.data, steps), "--threads", "1", "--cpus", "0.3"]
        own = os.path.join(SOURCE, "examples", "sequence")
        words += [f"megatron_training.tokenizer_name_or_path={own}"]
        words += [f"{section}.model={own}/policy" for section in ("actor_config", "critic_config")]
        return ["--", sys.executable, "-m", "treadle.ray", "train", *words]

    def test_submit_and_stop(self):
        said = self.job("submit", *self.train(2))
        self.assertIn("rank 0 (the controller): node ", said)
        self.assertRegex(said, r"step 2 of 2 .*\n")
        self.assertRegex(said, "Job '.*' succeeded")
        shutil.rmtree(f"{self.data}/run")
        name = re.search(r"raysubmit_\w+", self.job("submit", "--no-wait", *self.train(LONG))).group()
        until = time.monotonic() + 200
        while not os.path.exists(f"{self.data}/run/latest_checkpointed_iteration.txt"):
            self.assertLess(time.monotonic(), until, self.job("logs", name))
            time.sleep(0.1)
        self.job("stop", name)
        until = time.monotonic() + 60
        while running(self.data) and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(running(self.data), {})
        self.assertIn("SIGTERM: the run ends after the step at hand", self.job("logs", name))


if __name__ == "__main__":
    unittest.main()
