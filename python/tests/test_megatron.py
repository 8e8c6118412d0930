"""treadle.megatron against values that the real package gave (megatron_recorded.json; tests/plugins/megatron_rank.py
makes it): the text, what differs by name, and RLinf's places. make test-plugins ONLY=megatron has the package
itself."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import treadle
import treadle.megatron
from treadle.megatron import _compare, _facts, _text

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "megatron_recorded.json")
QKV, NORM = "decoder.layers.0.self_attention.linear_qkv.weight", "decoder.layers.0.input_layernorm.weight"


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        with open(RECORDED) as file:
            cls.recorded = json.load(file)
        cls.models = {}
        for config in cls.recorded["configs"].values():
            path = os.path.join(cls.folder.name, config["model_type"], "config.json")
            os.makedirs(os.path.dirname(path))
            with open(path, "w") as file:
                json.dump(config, file)
            cls.models[config["model_type"]] = treadle.Model(path)

    def ranks(self, kind):
        """(facts, text) of each recorded rank."""
        found = [
            (_facts.facts_of(made["facts"]), made["text"]) for made in self.recorded["ranks"] if made["model"] == kind
        ]
        self.assertGreater(len(found), 1)
        return found

    def one(self):
        return self.ranks("qwen3")[0][0]

    def with_config(self, **changes):
        facts = self.one()
        return facts._replace(config={**facts.config, **changes})

    def refused(self, words, facts, model="qwen3"):
        with self.assertRaisesRegex(treadle.Refused, words):
            _compare.compared(self.models[model], _text.text_of(facts), facts)


class TestText(Recorded):
    def test_recorded_ranks(self):
        for kind, model in self.models.items():
            for facts, text in self.ranks(kind):
                self.assertEqual(_compare.compared(model, _text.text_of(facts), facts), text)

    def test_every_rank_finds_one_text(self):
        for kind in self.models:
            self.assertEqual(len({_text.text_of(facts) for facts, _ in self.ranks(kind)}), 1)

    def test_transformer_engine(self):
        """Its names: the norms are inside of the linear layers."""
        names = {
            "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
            "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
        }
        for facts, text in self.ranks("qwen3"):
            chunks = []
            for chunk in facts.chunks:
                chunks.append({})
                for name, kept in chunk.items():
                    layer, dot, part = name.rpartition(".layers.")[2].partition(".")
                    chunks[-1][name.replace(part, names[part]) if part in names else name] = kept
            facts = facts._replace(chunks=chunks)
            self.assertEqual(
                _compare.compared(self.models["qwen3"], _text.text_of(facts), facts), text.replace("spec=local,", "")
            )

    def test_stages(self):
        for changes, words in (
            ({"num_layers_in_first_pipeline_stage": 1}, "vpp=2,first=1,"),
            ({"num_layers_in_last_pipeline_stage": 3}, "vpp=2,last=3,"),
            (
                {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True},
                "vpp=2,embedding_split=on,loss_split=on,",
            ),
        ):
            self.assertIn(words, _text.text_of(self.with_config(**changes)))
        stages = [[["embedding", "decoder"], ["decoder"]], [["decoder", "decoder"], ["mtp", "loss"]]]
        self.assertIn(',layout="Et|tt|t|mL",', _text.text_of(self.one()._replace(stages=stages)))
        with self.assertRaisesRegex(treadle.Refused, "'encoder', which is none of embedding, decoder, mtp, loss"):
            _text.text_of(self.one()._replace(stages=[[["encoder"]]]))

    def test_a_rank_without_layers(self):
        for made_as, words in (
            (("te", "bfloat16"), "spec=te,dtype=bf16"),
            (("local", "float32"), "spec=local,dtype=fp32"),
        ):
            self.assertIn(words, _text.text_of(self.one()._replace(chunks=[{}, {}], made_as=made_as)))

    def test_orders(self):
        """8 ranks: tp=2, cp=2, pp=2, in each order; the usual one is not named."""
        groups = {"tp": [4, 5], "cp": [4, 6], "dp": [4], "pp": [0, 4]}
        facts = self.one()._replace(rank=4, ranks=8, groups=groups)
        self.assertNotIn("order", _text.text_of(facts))
        self.assertIn(
            ",order=tp-ep-dp-pp-cp,", _text.text_of(facts._replace(groups={**groups, "cp": [0, 4], "pp": [4, 6]}))
        )
        with self.assertRaisesRegex(
            treadle.Refused, r"no order of tp, cp, ep, dp and pp gives the groups of rank 4: tp \[4, 7\]"
        ):
            _text.text_of(facts._replace(groups={**groups, "tp": [4, 7]}))
        with self.assertRaisesRegex(treadle.Refused, r"\(tp=2, cp=2, dp=1, pp=2\) are 8 ranks, and torch has 16"):
            _text.text_of(facts._replace(ranks=16))

    def test_experts(self):
        facts = self.ranks("qwen3_moe")[0][0]
        for old, new, form in (
            ("local_experts.0.linear_fc1.weight", "linear_fc1.weight0", "grouped"),
            ("local_experts.0.linear_fc1.weight", "linear_fc1.weight", "stacked"),
            ("local_experts.0.linear_fc1.weight", "weight1", "legacy"),
        ):
            chunks = [
                {
                    name.replace(old, new): kept
                    for name, kept in chunk.items()
                    if ".local_experts." not in name or name.endswith(old)
                }
                for chunk in facts.chunks
            ]
            self.assertIn(f"experts={form},", _text.text_of(facts._replace(chunks=chunks)))
        chunks = [
            {
                name.replace("local_experts.0", "mine"): kept
                for name, kept in chunk.items()
                if ".local_experts.1" not in name
            }
            for chunk in facts.chunks
        ]
        with self.assertRaisesRegex(treadle.Refused, "the module spec is not known: '.*experts.mine.linear_fc"):
            _text.text_of(facts._replace(chunks=chunks))


class TestDiffers(Recorded):
    def changed(self, chunk, **names):
        facts = self.one()
        chunks = [dict(kept) for kept in facts.chunks]
        for name, kept in names.items():
            name = name.replace("__", ".")
            if kept is None:
                del chunks[chunk][name]
            else:
                chunks[chunk][name] = kept
        return facts._replace(chunks=chunks)

    def test_names_shapes_types(self):
        kept = self.one().chunks[1][QKV]
        self.refused(
            "'decoder.layers.0.mlp.adapter.weight' of chunk 1: the layout has no such tensor on rank 0 of "
            "megatron:tp=2,pp=2,vpp=2",
            self.changed(1, **{"decoder.layers.0.mlp.adapter.weight": kept}),
        )
        self.refused(
            "'decoder.layers.0.mlp.linear_fc3.weight' of chunk 1: "
            ".* the nearest is 'decoder.layers.0.mlp.linear_fc2.weight'",
            self.changed(
                1, **{"decoder.layers.0.mlp.linear_fc2.weight": None, "decoder.layers.0.mlp.linear_fc3.weight": kept}
            ),
        )
        self.refused(f"'{QKV}' of chunk 1: .* has it, and the chunk does not", self.changed(1, **{QKV: None}))
        self.refused(
            f"'{QKV}' of chunk 0 has the shape .127, 128.; rank 0 of .* has .128, 128.",
            self.changed(0, **{QKV: kept._replace(shape=(127, 128))}),
        )
        self.refused(
            f"'{NORM}' of chunk 0 is float32; rank 0 of .* has bfloat16",
            self.changed(0, **{NORM: self.one().chunks[0][NORM]._replace(dtype="float32")}),
        )

    def test_layers(self):
        facts = self.one()
        self.refused(
            "'decoder.layers.0' of chunk 1 is layer 3 of the model; in megatron:.* rank 0 has 'model.layers.2.",
            facts._replace(layers=[facts.layers[0], [3]]),
        )

    def test_unknown_spec(self):
        facts = self.one()
        chunks = [{name: kept for name, kept in chunk.items() if "layernorm" not in name} for chunk in facts.chunks]
        with self.assertRaisesRegex(
            treadle.Refused,
            r"the module spec is not known: rank 0 has neither 'decoder.layers.\*.layer_norm_weight' \(te\) nor",
        ):
            _text.text_of(facts._replace(chunks=chunks))

    def test_chunks(self):
        facts = self.one()
        with self.assertRaisesRegex(treadle.Refused, "rank 0 gives 1 chunks, and Megatron has 2 virtual stages"):
            _text.text_of(facts._replace(chunks=facts.chunks[:1]))

    def test_type(self):
        facts = self.one()
        chunks = [
            {name: kept._replace(dtype="float8_e4m3fn") for name, kept in chunk.items()} for chunk in facts.chunks
        ]
        with self.assertRaisesRegex(treadle.Refused, "is float8_e4m3fn, and must be one of float32, bfloat16, float16"):
            _text.text_of(facts._replace(chunks=chunks))

    def test_another_model(self):
        self.refused("has no such tensor on|has it, and the chunk does not", self.one(), model="qwen3_moe")


class TestPlaces(Recorded):
    def test_rlinf(self):
        places = treadle.megatron.places
        self.assertEqual(
            places(4, 8, 2), [[(0, 0)], [(1, 0)], [(0, 1)], [(1, 1)], [(2, 0)], [(3, 0)], [(2, 1)], [(3, 1)]]
        )
        self.assertEqual(places(4, 8, 1), [[(rank, 0)] for rank in range(8)])
        self.assertEqual(places(2, 4, 2), [[(0, 0)], [(0, 1)], [(1, 0)], [(1, 1)]])
        self.assertEqual(places(1, 4, 2), [[(0, 0)], [(0, 1)], [(1, 0)], [(1, 1)]])
        self.assertEqual(places(2, 2, 2, 4), [[(0, 0), (1, 0)], [(0, 1), (1, 1)]])
        self.assertEqual(places(4, 8, 2, 4), [[(0, 0)], [(1, 0)], [(0, 1)], [(1, 1)], [], [], [], []])
        with self.assertRaisesRegex(treadle.Refused, "tp=2 is not a multiple of the engine's tp=4"):
            places(2, 8, 4)
        with self.assertRaisesRegex(treadle.Refused, "6 ranks that generate are not a multiple of the trainers' tp=4"):
            places(4, 8, 2, 6)

    def test_are_treadles(self):
        """The rows of the embedding that a rank has in the engine's layout say its place."""
        model = self.models["qwen3"]
        for train_tp, infer_tp in ((4, 2), (4, 1), (2, 2), (1, 2)):
            train = treadle.Layout(model, f"megatron:tp={train_tp}", 8)
            infer = treadle.Layout(
                model, f"vllm:tp={infer_tp}", 8, rank_map=treadle.megatron.rank_map(train_tp, infer_tp), train=train
            )
            rows = model.tensors[0].shape[0] // infer_tp * model.tensors[0].shape[1]
            found = [infer.runs(rank, "model.embed_tokens.weight")[0].start // rows for rank in range(8)]
            self.assertEqual(found, [place[0][1] for place in treadle.megatron.places(train_tp, 8, infer_tp)])


class TestTensors(unittest.TestCase):
    def test_keys(self):
        """Chunks from the second on have their number in the key; wrappers and _extra_state have none."""

        class Chunk:
            def named_parameters(self):
                return [("module.module.weight", "w"), ("module.layer._extra_state", "e")]

            def named_modules(self):
                return []

        self.assertEqual(treadle.megatron.tensors([Chunk(), Chunk()]), {"weight": "w", (1, "weight"): "w"})
        self.assertEqual(treadle.megatron.tensors(Chunk()), {"weight": "w"})

    def test_imports_nothing(self):
        said = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, treadle.megatron; treadle.megatron.places(2, 2, 2); print([m for m in ('torch', "
                "'megatron') if m in sys.modules])",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertEqual(said, "[]\n")


if __name__ == "__main__":
    unittest.main()
