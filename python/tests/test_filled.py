"""What nobody has filled does not go to INFER, and weights are not made up unasked."""

import os
import shutil
import tempfile
import unittest

import ranks

import treadle


def serve(rank, size, name, folder, how):
    """One rank fills its train window in some way, or in none; the others load."""
    import numpy

    model = treadle.Model(folder)
    group = treadle.Group.join(name, rank, size, timeout=60)
    train, infer = treadle.Layout(model, f"megatron:tp={size}", size), treadle.Layout(model, f"vllm:tp={size}", size)
    options = {}
    if how.startswith("own") and rank == 1:  # every second one, or all
        own = {s.name: numpy.zeros(s.shape, "uint16") for s in train.storages(rank)}
        options["train_tensors"] = own if how == "own all" else dict(list(own.items())[::2])
    if how == "allow_unfilled" and rank == 1:
        options["allow_unfilled"] = True
    if how.startswith("own"):
        options["offload"] = []
    with treadle.Switch(group, train, infer, page=4096, cap=2 << 20, timeout=60, **options) as sw:
        window = sw.train
        if rank != 1 or how == "load":
            sw.load()
        elif how == "numpy":
            for array in window.numpy().values():
                array[:] = 1
        elif how == "numpy of all but one":
            for memory in list(window.values())[1:]:
                memory.numpy()[:] = 1
        elif how == "dlpack":
            for memory in window.values():
                numpy.from_dlpack(memory) if memory.dtype != "bfloat16" else memory.__dlpack__(max_version=(1, 0))
        elif how == "checker":
            checker = treadle.Checker(window)
            checker.snapshot()
            assert checker.compare() == []
        elif how == "checker's reset":
            treadle.Checker(window).reset(1)
        elif how == "filled":
            sw.filled()
        elif how == "addresses":
            assert all(memory.address for memory in window.values())
        return sw.to_infer()


class TestFilled(ranks.Folder, unittest.TestCase):
    def test_given(self):
        for how in ("load", "numpy", "dlpack", "checker's reset", "filled", "own all", "allow_unfilled"):
            with self.subTest(how=how):
                self.assertEqual(ranks.run(2, "test_filled", "serve", self.model, how), [1, 1])

    def test_refused(self):
        first = "embedding.word_embeddings.weight"
        for how, words in (
            ("nothing", first),
            ("addresses", first),
            ("checker", first),
            ("numpy of all but one", f"1 of .*{first}"),
            ("own some", "were never given values"),
        ):
            with self.subTest(how=how):
                answers = ranks.finish(ranks.start(2, "test_filled", "serve", self.model, how))
                for answer in answers:  # every rank, with the names
                    self.assertEqual(answer[0], "raised", answers)
                    self.assertRegex(answer[2], words)
                    self.assertIn("were never given values", answer[2])
                self.assertEqual(answers[1][1], "Refused")

    def test_digest(self):
        model, group = treadle.Model(self.model), treadle.Group.alone()
        train, infer = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
        with treadle.Switch(group, train, infer, page=4096) as sw:
            with self.assertRaisesRegex(treadle.Refused, "digest: rank 0: .* were never given values"):
                sw.digest()
            sw.load()
            sw.digest()


class TestWeights(ranks.Folder, unittest.TestCase):
    def test_not_found(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(self.model, "config.json"), folder)
            shutil.copy(
                os.path.join(self.model, "model.safetensors"), os.path.join(folder, "model-00001-of-00001.safetensors")
            )
            config = os.path.join(folder, "config.json")
            model = treadle.Model(folder)
            self.assertIsNone(model.weights)
            self.assertEqual(treadle.Model(self.model).weights, "files")
            self.assertEqual(treadle.Model(config).weights, "random")
            self.assertEqual(treadle.Model(folder, weights="random").weights, "random")
            for call, words in (
                (lambda: treadle.Model(folder, weights="files"), "safetensors without an index"),
                (lambda: treadle.Model(config, weights="files"), "a config.json alone"),
                (lambda: treadle.Model(folder, weights="made"), "weights is 'made'"),
            ):
                with self.assertRaisesRegex(treadle.Refused, words):
                    call()
            group = treadle.Group.alone()
            layouts = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
            with treadle.Switch(group, *layouts, page=4096) as sw:
                for weights in (None, "files"):
                    with self.assertRaisesRegex(treadle.Refused, "has no weights.*safetensors without an index"):
                        sw.load(weights)
                with self.assertRaisesRegex(treadle.Refused, "were never given values"):
                    sw.to_infer()
                sw.load(weights="random")
                made_up = sw.digest()
                self.assertEqual(sw.to_infer(), 1)
            with open(os.path.join(self.model, "model.safetensors"), "rb") as file:
                data = bytearray(file.read())
            data[-1] ^= 1  # other values than those that are made up
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write(data)
            model = treadle.Model(folder)
            layouts = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
            with treadle.Switch(group, *layouts, page=4096) as sw:
                sw.load("files")
                self.assertNotEqual(sw.digest(), made_up)
                sw.load("random")
                self.assertEqual(sw.digest(), made_up)


if __name__ == "__main__":
    unittest.main()
