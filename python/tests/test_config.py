"""Configurations of others' runs, read for their switch."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import ranks

import treadle

SOURCE = pathlib.Path(__file__).resolve().parents[2]
VERL = SOURCE / "tests/data/config/verl-megatron.yaml"
RLINF = SOURCE / "tests/data/config/rlinf-megatron.yaml"


class TestConfig(ranks.Folder, unittest.TestCase):
    def read(self, *arguments):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            config = treadle.config.read(*arguments)
        self.assertEqual([str(warning.message) for warning in caught], list(config.warnings))
        return config

    def test_read(self):
        config = self.read(VERL)
        self.assertEqual(
            config,
            {
                "model": "~/models/tiny",
                "train": "megatron:tp=2,pp=2,first=3,dtype=bf16",
                "infer": "vllm:tp=2,dp=2,dtype=bf16",
                "ranks": 16,
                "nodes": 2,
                "offload": ["params", "grads", "optimizer"],
                "cap": 512 << 20,
                "source": "verl",
            },
        )
        self.assertEqual(config.rank_map, "contiguous")
        self.assertEqual(len(config.warnings), 2)
        self.assertRegex(config.warnings[0], r"yaml:41: actor_rollout_ref\.rollout\.name is not said: taken as vllm")
        self.assertRegex(config.warnings[1], r"known, and without effect here: .*data\.max_prompt_length \(line 69\)")

    def test_overrides(self):
        config = self.read(
            os.fspath(RLINF), ["rollout.rollout_backend=vllm", "cluster.component_placement.actor,rollout,reward=null"]
        )
        self.assertEqual(
            config,
            {
                "model": "./models/tiny",
                "train": "megatron:tp=2,dtype=fp16",
                "infer": "vllm:dtype=fp16",
                "ranks": None,
                "nodes": 1,
                "offload": [],
                "cap": None,
                "source": "RLinf",
            },
        )
        self.assertEqual(config.rank_map, "strided")

    def test_is_that_of_the_command(self):
        said = subprocess.run(
            [
                sys.executable,
                "-m",
                "treadle",
                "plan",
                "--config",
                VERL,
                "--model",
                self.model,
                "--json",
                "trainer.nnodes=1",
                "actor_rollout_ref.rollout.name=sglang",
                "actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_first_pipeline_stage=null",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        config = self.read(
            VERL,
            [
                "trainer.nnodes=1",
                "actor_rollout_ref.rollout.name=sglang",
                "actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_first_pipeline_stage=null",
            ],
        )
        theirs = json.loads(said)
        self.assertEqual(theirs["config"], config)
        model = treadle.Model(self.model)
        plan = treadle.plan(
            model, config["train"], config["infer"], config["ranks"], cap=config["cap"], rank_map=config.rank_map
        )
        for key in ("ranks", "moved_bytes", "lower_bound_bytes", "peak_bytes", "waves", "rank_map", "by_rank"):
            self.assertEqual(plan[key], theirs[key], key)

    def test_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.yaml")
            for text, words in (
                (
                    "actor_rollout_ref: {rollout: {name: vllm, quantization: fp8}}\n",
                    r"run\.yaml:1: actor_rollout_ref\.rollout\.quantization: this cannot",
                ),
                (
                    "actor: {}\ncluster:\n  component_placement: {actor: 3-1}\n",
                    r"run\.yaml:3: cluster\.component_placement\.actor is '3-1'",
                ),
                (
                    "generate_config: {infer_tensor_parallel_size: '${oc.env:TP}'}\n",
                    r"run\.yaml:1: .*\$\{oc\.env:TP\} is of the environment",
                ),
                ("a: 1\n", r"run\.yaml:1: has no section"),
            ):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                with self.assertRaisesRegex(treadle.Refused, words):
                    treadle.config.read(path)
            with self.assertRaisesRegex(treadle.Refused, "expected section.key=value"):
                treadle.config.read(path, ["x"])
            with self.assertRaisesRegex(treadle.Refused, "zero character"):
                treadle.config.read("a\0b")
            with self.assertRaisesRegex(treadle.System, "nothing"):
                treadle.config.read(os.path.join(folder, "nothing"))

    def test_is_imported_when_asked_for(self):
        said = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, treadle; print('treadle.config' in sys.modules); treadle.config.read; "
                "print([m for m in ('torch', 'numpy', 'verl', 'omegaconf', 'yaml') if m in sys.modules])",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertEqual(said, "False\n[]\n")


class TestPools(ranks.Folder, unittest.TestCase):
    def check(self, path, overrides, nodes):
        """The command prints what the function answers, which it returns."""
        found = treadle.config.pools(path, overrides, nodes)
        words = ["--nodes", ",".join(map(str, nodes)) + ","] if nodes else []
        command = [sys.executable, "-m", "treadle", "pools", os.fspath(path), *overrides, *words, "--json"]
        said = subprocess.run(command, check=True, capture_output=True, text=True)
        self.assertEqual(found, json.loads(said.stdout))
        return found

    def test_pools(self):
        s4 = SOURCE / "examples/pools-s4.yaml"
        found = self.check(s4, [], [8] * 7)
        self.assertEqual([len(pool["ranks"]) for pool in found["pools"]], [32, 16, 8])
        self.assertEqual(found["pools"][1]["nodes"], [4, 5])
        self.assertEqual(found["ranks"][55]["roles"], ["RewardModel"])
        self.assertIsNone(found["train"])
        self.check(s4, ["resource_pools.critic=[4, 1]"], [9] * 8)
        found = self.check(s4, ["resource_pools={actor_rollout: [3], critic: [1], reward: [2]}"], [3, 3])
        self.assertEqual(found["train"], {"processes": 7, "nodes": [4, 3]})
        self.check(s4, [], [])
        with self.assertRaisesRegex(treadle.Refused, "Total available slots 48 is less than total desired slots 56"):
            treadle.config.pools(s4, nodes=[8] * 6)
        with self.assertRaisesRegex(treadle.Refused, r"nodes is \[8, 0\]"):
            treadle.config.pools(s4, nodes=[8, 0])
        with self.assertRaisesRegex(treadle.Refused, "role ActorRollout has no pool"):
            treadle.config.pools(s4, ["mapping.ActorRollout=null"])

    def test_bytes(self):
        config = pathlib.Path(self.folder, "pools.yaml")
        config.write_text(
            "rl_config: {n_samples_per_prompt: 2, max_prompt_length: 8}\n"
            "generate_config: {sampling_config: {max_tokens: 8}}\n"
        )
        found = self.check(config, [f"actor_config.model={SOURCE}/examples/sequence/policy/config.json"], [2])
        self.assertGreater(found["pools"][0]["bytes"], 0)
        self.assertEqual(found["controller"], 0)


if __name__ == "__main__":
    unittest.main()
