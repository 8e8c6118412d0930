"""`python -m treadle.ray train`: the bits of mpirun, and what happens when something goes wrong."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import cluster
import ray
from ray.cluster_utils import Cluster

from treadle.command import program
from treadle.ray.__main__ import parse

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TREADLE = os.path.join(SOURCE, "build", "treadle")  # which knows MPI
CONFIG = "examples/ppo-demo.yaml"
POOLS = [
    "resource_pools={policy: [2], critic: [2]}",
    "mapping={ActorRollout: policy, RefPolicy: policy, Critic: critic}",
]
LONG = 100000  # steps


def keys(folder, steps=4):
    return [
        f"megatron_training.data_path={folder}/data/train.jsonl",
        f"megatron_training.val_path={folder}/data/test.jsonl",
        f"actor_config.save={folder}/run",
        f"rl_config.dump_rollouts={folder}/dump",
        f"megatron_training.train_iters={steps}",
        "megatron_training.test_interval=2",
        "megatron_training.save_interval=2",
        "megatron_training.global_batch_size=8",
        "megatron_training.max_ckpt_to_keep=0",
        "rl_config.mini_batch_size=4",
        "rl_config.val_n=1",
        "rl_config.critic_warmup=1",
        "rl_config.use_kl_in_reward=true",
        "rl_config.init_kl_coef=0.1",
        "actor_config.micro_batch_size=4",
        "generate_config.sampling_config.max_tokens=12",
        "generate_config.kv_memory=64KiB",
    ]


def running(folder):
    """Processes of the command that work on this folder: {rank: process id}."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().decode().split("\0")
        except OSError:
            continue
        if words[0] == program() and f"actor_config.save={folder}/run" in words:
            found[int(words[words.index("--rank") + 1])] = int(path.split("/")[2])
    return found


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


class Runs(unittest.TestCase):
    address = ""
    cpus = "0.3"

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="treadle-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        made = [program(), "data", "sequence", "--out", f"{self.folder}/data", "--noise", "0.3"]
        subprocess.run(made, check=True, capture_output=True)

    def start(self, words, steps=4):
        command = [sys.executable, "-m", "treadle.ray", "train", CONFIG, *keys(self.folder, steps), "--threads", "1"]
        command += ["--address", self.address, "--cpus", self.cpus, *words]
        driver = subprocess.Popen(command, cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, driver)
        return driver

    def end(self, driver):
        if driver.poll() is None:
            driver.kill()
        driver.communicate()

    def run_on_ray(self, *words):
        driver = self.start(words)
        out, err = driver.communicate(timeout=300)
        return driver.returncode, out, err

    def start_long(self, *words):
        """A run with a checkpoint, that goes on."""
        driver = self.start(words, LONG)
        until = time.monotonic() + 300
        while not os.path.exists(f"{self.folder}/run/latest_checkpointed_iteration.txt"):
            self.assertIsNone(driver.poll(), driver.stderr.read() if driver.poll() is not None else "")
            self.assertLess(time.monotonic(), until)
            time.sleep(0.1)
        return driver

    def ended(self, driver):
        """Exit status, output and errors; no process of it is left."""
        out, err = driver.communicate(timeout=300)
        until = time.monotonic() + 30
        while running(self.folder) and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual(running(self.folder), {})
        return driver.returncode, out, err

    def result(self, text):
        """What has to be equal of a run, of which `text` is the JSON object. Its folders are gone then."""
        figures = json.loads(text)
        found = {key: figures[key] for key in ("weights_digest", "losses_digest", "logprob_differing")}
        with open(f"{self.folder}/run/metrics.jsonl") as file:
            found["critic"] = re.findall(r'"critic/[a-z_/]*":[^,]*', file.read())
        dump = glob.glob(f"{self.folder}/dump/**", recursive=True)
        for path in [f"{self.folder}/run/global_step_4/digests.json", *dump]:
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found[path] = file.read()
        shutil.rmtree(f"{self.folder}/run")
        shutil.rmtree(f"{self.folder}/dump")
        return found


class TestTrain(Runs):
    @classmethod
    def setUpClass(cls):
        cluster.start(cpus=2, gpus=0)
        cls.address = ray.get_runtime_context().gcs_address

    @classmethod
    def tearDownClass(cls):
        cluster.stop()

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_bits(self):
        """On pools of their own, and on one pool, as in ranks of mpirun that do everything together."""
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        command = ["mpirun", "--oversubscribe", "-n", "2", TREADLE, "train", CONFIG, *keys(self.folder), "--json"]
        done = subprocess.run(
            [*command, "--threads", "1"], cwd=SOURCE, env={**os.environ, **root}, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        together = self.result(done.stdout)
        self.assertGreater(len(together), 8)
        for words in (POOLS, ["--slots", "2"]):
            status, out, err = self.run_on_ray(*words, "--json")
            self.assertEqual(status, 0, err)
            self.assertEqual(self.result(out), together)
            self.assertIn("rank 0 (the controller): node ", err)
            self.assertNotIn("kill -USR1", err)

    def test_lines(self):
        """As those of the command: one a step."""
        status, out, err = self.run_on_ray(*POOLS)
        self.assertEqual(status, 0, err)
        lines = out.splitlines()
        self.assertEqual([line.split()[1] for line in lines if line.startswith("step ")], ["1", "2", "3", "4"])
        self.assertRegex(err, r"Ray 2\S* at \S+: 5 processes\. ")
        self.assertRegex(err, r"ranks 1 to 2 of ActorRollout, RefPolicy \(pool 'policy'\): node [0-9.]+ \(\w{8}\)\n")
        self.assertRegex(err, r"ranks 3 to 4 of Critic \(pool 'critic'\): node ")
        self.trace()

    def trace(self):
        """Who worked when, of all ranks but the controller; the report draws it."""
        with open(f"{self.folder}/run/trace.jsonl") as file:
            lines = [json.loads(line) for line in file]
        roles = {(line["rank"], line["role"]) for line in lines}
        self.assertLessEqual({(1, "ActorRollout"), (2, "ActorRollout"), (3, "Critic"), (4, "Critic")}, roles)
        self.assertEqual({line["step"] for line in lines if line["method"] == "update_critic"}, {1, 2, 3, 4})
        for line in lines:
            self.assertLessEqual(0, line["start"])
            self.assertLessEqual(line["start"], line["end"])
        with open(f"{self.folder}/run/metrics.jsonl") as file:
            self.assertEqual(file.read().count('"control/idle_s"'), 4)
        written = f"{self.folder}/trace.json"
        made = subprocess.run([program(), "report", f"{self.folder}/run", "--trace", written], capture_output=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        with open(written) as file:
            events = json.load(file)["traceEvents"]
        self.assertEqual(sum(event["ph"] == "X" for event in events), len(lines))
        with open(f"{self.folder}/run/report.html") as file:
            self.assertIn("Critic", file.read())

    def dies(self, rank, name):
        driver = self.start_long(*POOLS)
        began = time.monotonic()
        os.kill(parent(running(self.folder)[rank]), signal.SIGKILL)  # the actor, and the command with it
        status, _, err = self.ended(driver)
        self.assertEqual(status, 1)
        self.assertLess(time.monotonic() - began, 60)
        self.assertRegex(err, name + r", node [0-9.]+ \(\w{8}\), died: The actor died")
        return err

    def test_actor_dies(self):
        err = self.dies(2, r"rank 2 of ActorRollout, RefPolicy \(pool 'policy'\)")
        lost = r"rank 2 \(ActorRollout, RefPolicy, pool 'policy', node 0\) is lost in "
        self.assertRegex(err, "treadle train: .*" + lost)

    def test_controller_dies(self):
        err = self.dies(0, r"rank 0 \(the controller\)")
        self.assertIn("rank 0 (controller, node 0) is lost", err)

    def test_command_dies(self):
        driver = self.start_long(*POOLS)
        os.kill(running(self.folder)[4], signal.SIGKILL)
        status, _, err = self.ended(driver)
        self.assertEqual(status, 1)
        self.assertRegex(err, r"rank 4 of Critic \(pool 'critic'\), node .*, was ended by SIGKILL")
        self.assertRegex(err, r"rank 4 \(Critic, pool 'critic', node 0\) is lost in ")

    def test_stopped(self):
        """With a checkpoint of the last step, from which it goes on."""
        driver = self.start_long(*POOLS)
        driver.send_signal(signal.SIGTERM)
        status, out, err = self.ended(driver)
        self.assertEqual(status, 130, err)
        self.assertIn("SIGTERM: the run ends after the step at hand", err)
        step = re.findall(r"^step (\d+) of", out, re.M)[-1]
        self.assertIn(f"stopped: {step} steps", out)
        self.assertTrue(os.path.isdir(f"{self.folder}/run/global_step_{step}"))

    def test_driver_dies(self):
        driver = self.start_long(*POOLS)
        driver.kill()
        self.assertEqual(self.ended(driver)[0], -signal.SIGKILL)

    def test_refused(self):
        large = (
            r"all pools: Total available CPUs 2 is less than total desired CPUs 2\.4; Ray has 1 nodes with 2 CPU.* "
            r"A slot takes 0\.3 CPU \(--cpus\)"
        )
        for words, said in (
            (["resource_pools={policy: [5], critic: [3]}", POOLS[1]], large),
            (["actor_config.lr=x"], "actor_config.lr"),
            (["--slots", "2", *POOLS], "--slots: examples/ppo-demo.yaml: resource_pools .*says which pools there are"),
            (["cluster.component_placement={actor: all, rollout: all}"], "gives roles all slots that there are; on R"),
            ([*POOLS, "--thread"], "treadle train: .*--thread"),
        ):
            status, out, err = self.run_on_ray(*words)
            self.assertEqual((status, out), (2, ""), err)
            self.assertRegex(err, said)
            self.assertLess(len(err.splitlines()), 12)


class TestNodes(Runs):
    """Two nodes, as two of Ray's node processes: each has room for one pool."""

    cpus = "0.5"

    def setUp(self):
        super().setUp()
        self.ray = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
        self.addCleanup(cluster.remove, self.ray)
        os.environ["RAY_TMPDIR"] = self.ray
        self.addCleanup(os.environ.pop, "RAY_TMPDIR")
        os.makedirs(os.path.join(self.ray, "ray"))
        head = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
        head["_system_config"] = cluster.SOON
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.addCleanup(self.cluster.shutdown)
        self.address = self.cluster.address

    def add(self, **options):
        node = self.cluster.add_node(num_cpus=1, object_store_memory=80 << 20, **options)
        self.cluster.wait_for_nodes()
        return node

    def node_ends(self, number):
        node = self.add()
        driver = self.start_long(*POOLS)
        raylet = node.all_processes["raylet"][0].process
        of_node = {rank for rank, pid in running(self.folder).items() if parent(parent(pid)) == raylet.pid}
        self.assertIn(of_node, ({1, 2}, {3, 4}, {0, 1, 2}))
        self.addCleanup(raylet.kill)
        raylet.send_signal(number)
        status, _, err = self.ended(driver)
        self.assertEqual(status, 1)
        self.assertRegex(err, rf"rank {max(of_node)} of \w.* \(pool '\w+'\), node [0-9.]+ \(\w{{8}}\), died: ")

    def test_node_dies(self):
        """Its raylet is killed, and its actors end."""
        self.node_ends(signal.SIGKILL)

    def test_node_stops(self):
        """Its raylet is stopped, and its ranks would go on: Ray takes the node for dead, and the run ends."""
        self.node_ends(signal.SIGSTOP)

    def test_node_without_the_wheel(self):
        with open(os.path.join(self.folder, "treadle.py"), "w") as file:
            file.write("raise ModuleNotFoundError('No module named treadle here')")
        self.add(env_vars={"PYTHONPATH": self.folder})
        status, _, err = self.run_on_ray(*POOLS)
        self.assertEqual(status, 1)
        self.assertRegex(
            err,
            r"rank \d (of .* \(pool '\w+'\)|\(the controller\)), node [0-9.]+ \(\w{8}\), has not started: "
            r".*No module named treadle here\. "
            "Each node needs treadle ",
        )


class TestWords(unittest.TestCase):
    def test_parse(self):
        made = parse(["c.yaml", "a.b=1", "--cpus=0.5", "--json", "--slots", "3", "--threads", "2"])
        self.assertEqual((made.config, made.words), ("c.yaml", ["a.b=1", "--json", "--threads", "2"]))
        self.assertEqual((made.address, made.cpus, made.slots), ("auto", 0.5, 3))

    def test_refused(self):
        for words, said in (
            ([], "needs CONFIG.yaml as its first word"),
            (["--json", "c.yaml"], "needs CONFIG.yaml as its first word"),
            (["c.yaml", "--cpus", "no"], "--cpus is 'no', and must be a number above 0"),
            (["c.yaml", "--cpus", "nan"], "--cpus is 'nan'"),
            (["c.yaml", "--slots", "0"], "--slots is '0'"),
            (["c.yaml", "--slots"], "--slots needs a value"),
            (["c.yaml", "--slots", "1", "--slots=2"], "--slots is given twice"),
            (["c.yaml", "--meet=a:1"], "--meet: ranks meet by Ray here"),
            (["c.yaml", "--plan"], "--plan starts no run"),
        ):
            with self.assertRaisesRegex(ValueError, said):
                parse(words)

    def test_command(self):
        def said(*words):
            done = subprocess.run([sys.executable, "-m", "treadle.ray", *words], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr

        self.assertIn("python -m treadle.ray train CONFIG", said("--help")[1])
        words = "treadle.ray: there is no command 'trian'; see python -m treadle.ray --help\n"
        self.assertEqual(said("trian"), (2, words))
        status, text = said("train", "/no/such.yaml")
        self.assertEqual(status, 1, text)
        self.assertIn("/no/such.yaml", text)
        config = os.path.join(SOURCE, "examples", "pools-s4.yaml")
        status, text = said("train", config, "--address", "127.0.0.1:1")
        self.assertEqual(status, 2, text)
        self.assertIn("there is no Ray cluster at '127.0.0.1:1'", text)


if __name__ == "__main__":
    unittest.main()
