"""The examples run as their first lines say."""

import importlib.util
import os
import subprocess
import sys
import unittest

import ranks

import treadle

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python")
HAS_TORCH = importlib.util.find_spec("torch") is not None


class TestExamples(ranks.Folder, unittest.TestCase):
    def run_example(self, name, *launcher):
        said = subprocess.run(
            [sys.executable, *launcher, os.path.join(EXAMPLES, name), self.model],
            capture_output=True,
            text=True,
            timeout=200,
        )
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        return said.stdout

    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4")

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_fsdp2_to_engine(self):
        said = self.run_example("01_fsdp2_to_engine.py", *self.torchrun)
        self.assertEqual(
            [line[:10] for line in said.splitlines() if line.startswith("version")],
            ["version 1:", "version 2:", "version 3:"],
        )

    def test_second_process(self):
        lines = sorted(self.run_example("02_second_process.py").splitlines())
        self.assertEqual(
            [line[:19] for line in lines],
            [f"engine {rank}: version {v}"[:19] for rank in range(2) for v in range(1, 4)],
        )
        sums = [int(line.split()[-1]) for line in lines]
        self.assertEqual(sums[:3], sums[3:])
        self.assertEqual(sums[0], sums[2])  # two steps, each of which turns one bit
        self.assertNotEqual(sums[0], sums[1])

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_separate_ranks(self):
        said = [
            line
            for line in self.run_example("03_separate_ranks.py", *self.torchrun).splitlines()
            if line.startswith("version")
        ]
        sums = [float(line.split()[-1]) for line in said]
        self.assertEqual(len(sums), 3)
        for a, b in zip(sums, sums[1:]):
            self.assertAlmostEqual(b / a, 2, 4)  # six digits are printed

    def test_numpy(self):
        self.assertIn(
            "version 1: model.layers.0.self_attn.qkv_proj.weight (512, 256) uint16", self.run_example("04_numpy.py")
        )

    def test_own_loop(self):
        """It has the weights of a run, bit for bit."""
        source = os.path.dirname(os.path.dirname(EXAMPLES))
        data, sequence = os.path.join(self.folder, "data"), os.path.join(source, "examples", "sequence")
        made = [sys.executable, "-m", "treadle", "data", "sequence", "--out", data, "--noise", "0.3", "--seed", "1"]
        subprocess.run(made, check=True, capture_output=True)
        prompts = os.path.join(data, "train.jsonl")
        example = os.path.join(EXAMPLES, "05_own_loop.py")
        loop = [sys.executable, example, os.path.join(sequence, "policy"), sequence, prompts, "2", "1"]
        said = subprocess.run(loop, capture_output=True, text=True, timeout=200)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        changes = {
            "actor_config.model": os.path.join(sequence, "policy"),
            "actor_config.save": os.path.join(self.folder, "run"),
            "actor_config.tensor_model_parallel_size": 1,
            "actor_config.pipeline_model_parallel_size": 1,
            "megatron_training.tokenizer_name_or_path": sequence,
            "megatron_training.data_path": prompts,
            "megatron_training.val_path": os.path.join(data, "test.jsonl"),
            "megatron_training.train_iters": 2,
            "rl_config.val_before_train": "false",
        }
        config = os.path.join(source, "examples", "grpo-demo.yaml")
        overrides = [f"{key}={value}" for key, value in changes.items()]
        figures = treadle.train(config, overrides, note=lambda line: None)
        self.assertEqual(said.stdout.splitlines()[-1], f"weights {figures.weights_digest:016x}")


if __name__ == "__main__":
    unittest.main()
