"""Models, layouts and plans: what they say, and what is refused."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import ranks

import treadle


class TestLayout(ranks.Folder, unittest.TestCase):
    def test_model(self):
        model = treadle.Model(self.model)
        self.assertEqual(model.family, "llama")
        self.assertTrue(model.has_weights)
        self.assertEqual(
            model.elems,
            sum(t.shape[0] * (t.shape[1] if len(t.shape) > 1 else 1) for t in model.tensors if t.same_as is None),
        )
        self.assertEqual(model.tensors[0].name, "model.embed_tokens.weight")
        self.assertEqual(model.tensors[0].shape, (512, 256))
        with self.assertRaisesRegex(treadle.Refused, "/nowhere"):
            treadle.Model("/nowhere")
        self.assertIsInstance(treadle.Refused("x"), ValueError)
        small = treadle.Model(os.path.join(self.model, "config.json"), scale_down=300000)
        self.assertLessEqual(small.elems, 300000)
        self.assertFalse(small.has_weights)
        self.assertEqual(model.notes, ())

    def test_notes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            with open(os.path.join(self.model, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**config, "dtype": "bfloat16", "torch_dtype": "float16"}, file)
            self.assertEqual(
                treadle.Model(path).notes,
                (f"{path}: torch_dtype is float16 beside a dtype of bfloat16, which is taken",),
            )
            for name in os.listdir(self.model):
                if name != "config.json":
                    os.symlink(os.path.join(self.model, name), os.path.join(folder, name))
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**config, "dtype": "float32"}, file)
            self.assertEqual(
                treadle.Model(folder).notes, (f"{path}: dtype is fp32, and the files have bf16, which is taken",)
            )

    def test_layout(self):
        model = treadle.Model(self.model)
        layout = treadle.Layout(model, "megatron:tp=2,pp=2,vpp=2", 4)
        self.assertEqual(layout.ranks, 4)
        self.assertEqual(treadle.Layout(model, layout.text, 4).text, layout.text)
        storages = layout.storages(1)
        self.assertEqual({s.chunk for s in storages}, {0, 1})
        self.assertEqual(storages[-1].offset_bytes + storages[-1].bytes <= layout.window_bytes(1), True)
        for storage in storages:
            runs = layout.runs(1, (storage.chunk, storage.name))
            self.assertEqual(sum(r.elems for r in runs) * 2, storage.bytes)
            self.assertEqual([r.local_start for r in runs], sorted(r.local_start for r in runs))
        for call, words in (
            (lambda: treadle.Layout(model, "megatron:tp=3", 3), "tp=3"),
            (lambda: treadle.Layout(model, "megatrn:tp=2", 2), "megatrn"),
            (lambda: treadle.Layout(model, "vllm:tp=2", 2, rank_map="best "), "'best '"),
            (lambda: treadle.Layout(model, "vllm:tp=2", 2, rank_map="strided"), "train"),
            (lambda: layout.storages(4), "rank 4 is none of the 4"),
            (lambda: layout.runs(-1, "x"), "rank -1"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                call()
        with self.assertRaisesRegex(KeyError, "no storage tensor 'x'"):
            layout.runs(0, "x")

    def test_zeros_inside(self):
        """Of a text that goes to the library nothing is cut off: there is one way in, and it refuses zeros."""
        model = treadle.Model(self.model)
        group = treadle.Group.alone()
        layout = treadle.Layout(model, "vllm:tp=1", 1)
        piece = ("w", (2,), "w", (0,), (2,), 0, (1,))
        for call in (
            lambda: treadle.Model(self.model + "\0/nonsense"),
            lambda: treadle.Model(os.fsencode(self.model) + b"\0"),
            lambda: treadle.Model(pathlib.Path(self.model + "\0")),
            lambda: treadle.Model(self.model, "families\0"),
            lambda: treadle.Layout(model, "vllm:tp=1\0,ep=2", 1),
            lambda: treadle.Layout.pieces(model, 1, [(0, "a\0b", *piece[1:])]),
            lambda: treadle.Layout.pieces(model, 1, [(0, "a", (2,), "b\0", *piece[3:])]),
            lambda: layout.runs(0, "lm_head.weight\0"),
            lambda: treadle.Group.join("name\0", 0, 1),
            lambda: treadle.plan(model, "vllm:tp=1\0", "vllm:tp=1", 1),
            lambda: treadle.Switch(group, layout, layout, net_devices="lo\0"),
            lambda: treadle.Layout.of(
                model, {"model.norm.weight\0": None, "x\0": numpy.zeros(3, numpy.float32)}, group
            ),
        ):
            with self.assertRaisesRegex(treadle.Refused, "has a zero character inside"):
                call()
        package = os.path.dirname(treadle.__file__)
        for file in os.listdir(package):
            if file.endswith(".py") and file != "_library.py":
                with open(os.path.join(package, file)) as text:
                    self.assertNotIn("fsencode", text.read(), file)

    def test_pieces(self):
        model = treadle.Model(self.model)
        whole = [
            treadle.Piece(
                rank,
                t.name,
                t.shape,
                t.name,
                (0,) * len(t.shape),
                t.shape,
                0,
                (t.shape[1], 1) if len(t.shape) == 2 else (1,),
            )
            for rank in range(2)
            for t in model.tensors
            if t.same_as is None
        ]
        layout = treadle.Layout.pieces(model, 2, whole)
        self.assertEqual(len(layout.storages(1)), len(whole) // 2)
        self.assertEqual(layout.runs(1, "model.norm.weight"), [treadle.Run(0, "model.norm.weight", 0, 1, 256, 0)])
        for spoiled, words in (
            (whole[:1], "model.layers.0"),
            (whole + whole[:1], "overlap|model.embed_tokens.weight"),
            ([whole[0]._replace(dtype="float65")], "float65"),
            ([whole[0]._replace(start=())], "start has 0 dimensions"),
            ([whole[0]._replace(tensor="nobody")], "nobody"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                treadle.Layout.pieces(model, 2, spoiled)

    def test_plan_is_the_command_s(self):
        for options, words in (
            ({}, []),
            ({"cap": 1 << 20, "page": 4096}, ["--cap", "1MiB", "--page-size", "4KiB"]),
            ({"rank": 3}, ["--rank", "3"]),
            ({"budget": 1 << 30, "alias": False}, ["--budget", "1GiB", "--alias", "off"]),
            ({"nodes": 2}, ["--nodes", "2"]),
            ({"nodes": 2, "rank_map": "best"}, ["--nodes", "2", "--rank-map", "best"]),
            ({"nodes": [7, 7, 3, 3], "rank": 2}, ["--nodes", "2", "--rank", "2"]),
        ):
            said = json.loads(
                subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "treadle",
                        "plan",
                        "--model",
                        self.model,
                        "--from",
                        "megatron:tp=2,pp=2",
                        "--to",
                        "vllm:tp=4",
                        "--ranks",
                        "4",
                        "--json",
                        *words,
                    ],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            made = treadle.plan(treadle.Model(self.model), "megatron:tp=2,pp=2", "vllm:tp=4", 4, **options)
            self.assertEqual(list(made), list(said))
            for key in said:
                if isinstance(said[key], float) and not key.startswith("plan_"):
                    self.assertAlmostEqual(made[key], said[key], 8, key)  # which has 9 digits
                elif not key.startswith("plan_"):
                    self.assertEqual(made[key], said[key], key)
        with self.assertRaisesRegex(treadle.Refused, "rank_map is 'best', and hf is a layout that has its own"):
            model = treadle.Model(self.model)
            treadle.plan(model, "hf", treadle.Layout(model, "hf", 2), 2, rank_map="best")
        for nodes, words in (
            (3, "4 ranks cannot be divided evenly among 3 nodes"),
            ([0, 1], "nodes of 2 ranks, and there are 4"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                treadle.plan(treadle.Model(self.model), "hf", "vllm:tp=4", 4, nodes=nodes)
            with self.assertRaisesRegex(treadle.Refused, words):
                treadle.Layout(treadle.Model(self.model), "vllm:tp=4", 4, nodes=nodes)
        with self.assertRaisesRegex(treadle.Refused, "is on 2 ranks, and not on 4"):
            treadle.plan(treadle.Model(self.model), treadle.Layout(treadle.Model(self.model), "hf", 2), "vllm:tp=4", 4)


if __name__ == "__main__":
    unittest.main()
