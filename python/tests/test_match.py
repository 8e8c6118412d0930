"""treadle.match against lists of parameters that real engines had (engines.json, recorded by
tests/plugins/record_vllm.py), without the engines."""

import json
import os
import tempfile
import unittest

import treadle
from treadle import matches

HERE = os.path.dirname(os.path.abspath(__file__))


def engines():
    with open(os.path.join(HERE, "engines.json")) as file:
        return json.load(file)


def engine(model, form, tp=1):
    return next(e for e in engines() if (e["model"], e["form"], e["tp"]) == (model, form, tp))


def of(engine, rank=0, change=lambda found: found, **options):
    """The match of a recorded engine; change: what else it would have."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w") as file:
            json.dump(engine["config"], file)
        model = treadle.Model(path)
    layout = treadle.Layout(model, f"vllm:tp={engine['tp']}", engine["tp"])
    return treadle.match(model, layout, rank, change(matches.recorded(engine["ranks"][rank])), **options)


def renamed(key, **fields):
    """All tensors of a name in their layers have another key."""
    return lambda tensors: [f._replace(key=f.key._replace(**fields)) if f.key.tensor == key else f for f in tensors]


class TestMatch(unittest.TestCase):
    def test_plain_engines_are_own(self):
        for name in ("llama", "qwen2", "qwen3"):
            with self.subTest(model=name):
                found = of(engine(name, "plain"))
                self.assertEqual({row.kind for row in found.rows}, {"own"})
                self.assertEqual(matches.Report(found.rows).share("own"), 1.0)

    def test_packed_engines(self):
        for name, tp in (("llama", 1), ("llama", 2), ("qwen2", 1)):
            for rank in range(tp):
                with self.subTest(model=name, tp=tp, rank=rank):
                    found = of(engine(name, "packed", tp), rank)
                    kinds = {row.name: row.kind for row in found.rows}
                    # It has its name and shape, and nothing reads it.
                    self.assertEqual(kinds["lm_head.weight"], "layer")
                    self.assertEqual(kinds["model.layers.1.mlp.down_proj.weight"], "layer")
                    self.assertEqual(kinds["model.norm.weight"], "own")
                    self.assertEqual(kinds["model.embed_tokens.weight"], "own")
                    self.assertFalse(found.refused)

    def test_tied(self):
        """The packed copy of a tied embedding is made again, though the embedding itself is read where it is."""
        found = of(engine("llama_tied", "packed"))
        self.assertEqual([f.name for f in found.layer["model.embed_tokens.weight"]], ["lm_head.weight"])
        self.assertNotIn("lm_head.weight", found.refused)

    def test_experts_are_refused(self):
        found = of(engine("qwen3_moe", "packed"))
        # The gate has two names, and one of them is the layout's.
        self.assertEqual({name.rpartition(".")[2] for name in found.refused}, {"w13_weight", "w2_weight"})
        with self.assertRaisesRegex(
            treadle.Refused,
            "the engine's weights cannot be updated: 'model.layers.0.mlp.experts.*nothing that "
            "is written to it changes",
        ):
            found.check()

    def test_what_the_list_does_not_know(self):
        for fields, words in (
            ({"layer": "OtherLinear"}, "OtherLinear with"),
            ({"method": "Fp8LinearMethod"}, "with Fp8LinearMethod"),
            ({"kernel": "sgl"}, "kernel 'sgl'"),
            ({"device": "cuda"}, "on cuda is not on the list"),
        ):
            with self.subTest(**fields):
                found = of(engine("llama", "plain"), change=renamed("weight", **fields))
                self.assertFalse(found.own)
                self.assertIn(words, found.refused["model.norm.weight"])
                self.assertEqual(
                    {
                        row.kind
                        for row in of(
                            engine("llama", "plain"), change=renamed("weight", **fields), unproved="layer"
                        ).rows
                    },
                    {"layer"},
                )

    def test_other_tensors(self):
        plain, norm = engine("llama", "plain"), "model.norm.weight"

        def with_norm(**fields):
            return lambda tensors: [f._replace(**fields) if f.name == norm else f for f in tensors]

        for change, words in (
            (with_norm(shape=(64,)), r"the engine has it as [64] of bfloat16, and the layout as [128] of bfloat16"),
            (with_norm(dtype="float32"), "as [128] of float32"),
            (lambda tensors: [f for f in tensors if f.name != norm], "the engine has no such tensor"),
        ):
            self.assertIn(words, of(plain, change=change).refused[norm])
        strided = of(
            plain,
            change=lambda tensors: [f._replace(strides=(1, 128)) if f.name == "lm_head.weight" else f for f in tensors],
        )
        self.assertEqual(
            {name: [f.name for f in founds] for name, founds in strided.window.items()},
            {"lm_head.weight": ["lm_head.weight"]},
        )
        tied = {**plain, "config": {**plain["config"], "tie_word_embeddings": True}}
        of_one = lambda tensors: [  # noqa: E731
            f._replace(strides=(1, 128), address=77) if f.name in ("lm_head.weight", "model.embed_tokens.weight") else f
            for f in tensors
        ]
        # All names become views.
        self.assertEqual(
            {name: len(founds) for name, founds in of(tied, change=of_one).window.items()},
            {"model.embed_tokens.weight": 2},
        )
        extra = of(
            plain,
            change=lambda tensors: [*tensors, tensors[0]._replace(name="model.adapter.lora_a", address=99, owner=99)],
        )
        self.assertIn("nothing would update it", extra.refused["model.adapter.lora_a"])

    def test_options(self):
        for options in ({"unproved": "own"}, {"prove": True}):
            with self.subTest(**options), self.assertRaises(treadle.Refused):
                of(engine("llama", "plain"), **options)

    def test_list(self):
        listed = matches.proved()
        self.assertEqual({kind for kind, _ in listed.values()} - {"own", "layer", "refused"}, set())
        self.assertTrue(all(proof for _, proof in listed.values()))


if __name__ == "__main__":
    unittest.main()
