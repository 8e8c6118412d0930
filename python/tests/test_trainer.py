"""The built-in trainer: figures, losses of the library and of Python, files; what ends a call; what is refused."""

import dataclasses
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import numpy
import ranks

import treadle
from treadle import _abi

ROWS = {"prompt_ids": [[3, 1], [3, 1], [9, 2, 6]], "ids": [[4, 1, 5], [2, 6], [5, 3, 5, 8]]}
PPO = {
    **ROWS,
    "rollout_log_probs": [[-6, -6, -6.5], [-6, -5.5], [-6, -6.5, -6, -6]],
    "advantage": [1.0, -0.5, 0.25],
}


class Mine(Exception):
    pass


def nll(row):
    row.losses[:] = -row.log_probs.astype(float) / 9
    row.by_log_prob[:] = -1 / 9


def on_ranks(rank, size, name, folder, layout):
    """Each rank gives its rows, and hears of the loss over all."""
    group = treadle.Group.join(name, rank, size, timeout=60)
    with treadle.Trainer(treadle.Layout(treadle.Model(folder), layout, size), group, threads=1) as trainer:
        trainer.load()
        forward = treadle.Forward(micro_batch_size=1)
        mine, rows = trainer.slice(treadle.Batch.of(PPO), forward)
        found = [trainer.update(mine, loss, forward, lr=1e-3) for loss in ("nll", nll, treadle.Loss())]
        out = trainer.logprobs(mine, forward)

        def fail(row):
            raise Mine(f"row {row.row} of rank {rank}")

        try:
            trainer.gradients(mine, fail, forward)
        except (Mine, treadle.System) as error:
            said = f"{type(error).__name__}: {error}"
        return [[rows.start, rows.stop], found, f"{trainer.weights_digest():x}", "log_probs" in out, said]


def refused_on_1(rank, size, name, folder):
    """Python refuses what rank 1 gives. Then both go on."""
    group, forward = treadle.Group.join(name, rank, size, timeout=60), treadle.Forward(micro_batch_size=1)
    batch, bad = treadle.Batch.of(PPO), rank == 1
    closed = treadle.Batch.of(PPO)
    closed.close()
    layout = treadle.Layout(treadle.Model(folder), "megatron:tp=2", size)
    with (
        treadle.Trainer(layout, group, threads=1) as trainer,
        treadle.Trainer(layout, group, threads=1) as other,
    ):
        trainer.load()
        other.load()
        words = [
            ranks.said(call)
            for call in (
                lambda: trainer.gradients(closed if bad else batch, "nll", forward),
                lambda: trainer.loss(batch, 5 if bad else "nll", forward),
                lambda: trainer.update(batch, "nll", forward, lr=1e-3, out="x" if bad else None),
                lambda: trainer.logprobs(batch, "x" if bad else forward),
                lambda: (trainer.gradients(batch, "nll", forward), trainer.step(lr=None if bad else 1e-3)),
                lambda: trainer.randomise(1.5 if bad else 1),
                lambda: treadle.Trainer(layout, group, threads="x" if bad else 1),
                lambda: treadle.gather(group, "x" if bad else batch),
                lambda: trainer.loss(batch, "ppo", treadle.Forward(micro_batch_size=1, temperature=1 + rank)),
                lambda: (other if bad else trainer).loss(batch, "nll", forward),
                lambda: trainer.randomise(rank),
                lambda: trainer.weights_digest() if bad else trainer.load(),
                lambda: treadle.Trainer(layout, group, threads=1, adam_beta1=0.9 + 0.05 * rank),
                lambda: treadle.Trainer(treadle.Layout(layout.model, "megatron:pp=2", size) if bad else layout, group),
            )
        ]
        trainer.load()
        found = trainer.update(batch, "nll", forward, lr=1e-3)
        return words, found.loss, len(treadle.gather(group, batch))


class TestTrainer(ranks.Folder, ranks.Interruptible):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.layout = treadle.Layout(treadle.Model(cls.model), "hf", 1)

    def make(self, **options):
        made = treadle.Trainer(self.layout, threads=1, most_rows=256, **options)
        self.addCleanup(made.close)
        made.load()
        return made

    def refused(self, words, call, *arguments, kind=treadle.Refused, **named):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **named)

    # ---- Values ----

    def test_fields(self):
        """Those of the library."""

        def names(struct):
            return {name for name, *_ in struct._fields_} - {"struct_size", "never_count", "of_row", "context"}

        windows = {"params_window", "grads_window", "optimizer_window", "work_window"}
        for kind, struct in (
            (treadle.Forward, _abi.treadle_forward_options),
            (treadle.Loss, _abi.treadle_loss_options),
            (treadle.TrainerOptions, _abi.treadle_trainer_options),
        ):
            self.assertEqual({field.name for field in dataclasses.fields(kind)}, names(struct) - windows)
        self.assertEqual(set(treadle.LossFigures._fields), names(_abi.treadle_loss))
        self.assertEqual(set(treadle.StepFigures._fields), names(_abi.treadle_optimizer_figures) - {"loss"})
        self.assertEqual(treadle.UpdateFigures._fields, treadle.LossFigures._fields + treadle.StepFigures._fields)

    @staticmethod
    def failing(row):
        raise treadle.Refused("nothing")

    def test_batch_changed_by_loss(self):
        trainer = self.make()
        batch = treadle.Batch.of({"ids": [[1, 3, 4]] * 200}).index(range(200))

        def own(row):
            if row.row == 2:
                del batch["ids"]
            row.losses[:] = -row.log_probs
            row.by_log_prob[:] = -1

        wanted = trainer.gradients(treadle.Batch.of({"ids": [[1, 3, 4]] * 200}), "nll", treadle.Forward(4))
        self.assertAlmostEqual(trainer.gradients(batch, own, treadle.Forward(4)).nll, wanted.nll, 2)
        self.assertEqual(batch.columns, [])

    # ---- Rows ----

    def test_log_probs(self):
        """With the bits of the generator's scores."""
        trainer = self.make()
        out = trainer.logprobs(treadle.Batch.of(ROWS), treadle.Forward(temperature=0.5, entropies=True))
        self.assertEqual(list(out), ["log_probs", "entropies"])
        texts = [prompt + ids for prompt, ids in zip(ROWS["prompt_ids"], ROWS["ids"])]
        with treadle.Generator(treadle.Layout(self.layout.model, "vllm", 1), threads=1, kv_bytes=1 << 20) as generator:
            generator.load()
            for row, score, ids in zip(out["log_probs"], generator.score(texts, temperature=0.5), ROWS["ids"]):
                numpy.testing.assert_array_equal(row, score[-len(ids) :])
        self.assertTrue((out["entropies"].numpy() > 0).all())
        weights = bytearray(self.layout.window_bytes(0))
        other = trainer.logprobs(treadle.Batch.of(ROWS), weights=weights)  # zeros: all tokens are equally probable
        numpy.testing.assert_allclose(other["log_probs"].numpy(), -numpy.log(512), rtol=1e-6)
        again = trainer.logprobs(treadle.Batch.of(ROWS), treadle.Forward(temperature=0.5))
        self.assertEqual(again["log_probs"].tolist(), out["log_probs"].tolist())
        self.refused("weights of 8 bytes", trainer.logprobs, treadle.Batch.of(ROWS), weights=bytearray(8))

    def test_critic(self):
        """A score head: values, scores and its loss; a language model begins with zeros."""
        model = treadle.Model(self.model, head="score", score_zeros=True)
        self.assertNotIn("lm_head.weight", [tensor.name for tensor in model.tensors])
        columns = {"values": [[0.0] * 3, [0.0] * 2, [0.0] * 4], "returns": [[1.0] * 3, [1.0] * 2, [-1.0] * 4]}
        batch = treadle.Batch.of({**ROWS, **columns})
        loss = treadle.Loss("value", clip_value=0.25)
        with treadle.Trainer(treadle.Layout(model, "hf", 1), threads=1, most_rows=64, optimizer=True) as trainer:
            trainer.load()
            self.assertEqual(trainer.values(batch)["values"].tolist(), [[0.0] * 3, [0.0] * 2, [0.0] * 4])
            self.assertEqual(trainer.scores(batch)["score"].tolist(), [0.0] * 3)
            out = treadle.Batch(3)
            found = trainer.update(batch, loss, lr=1e-3, out=out)
            self.assertAlmostEqual(found.vf_loss, 0.5, 12)
            self.assertEqual((found.vf_clipfrac, found.vpred_mean, found.tokens), (0.0, 0.0, 9))
            self.assertEqual(list(out), ["values"])
            self.assertLess(trainer.loss(batch, loss).loss, 0.5)
            self.refused("has a score head", trainer.logprobs, batch)
            self.refused("has a score head", trainer.loss, batch, "nll")
        self.refused("has the head of a language model", self.make().values, batch)
        self.refused("score.weight", treadle.Model, self.model, head="score")
        self.refused("head is 'lms', and must be 'lm' or 'score'", treadle.Model, self.model, head="lms")

    def test_slice(self):
        trainer, batch = self.make(), treadle.Batch.of(ROWS)
        mine, rows = trainer.slice(batch)
        self.assertEqual((rows, len(mine)), (range(0, 3), 3))
        self.assertEqual(mine["ids"].numpy().ctypes.data, batch["ids"].numpy().ctypes.data)

    # ---- Updates ----

    def test_update(self):
        """Losses of the library, and the same ones by Python."""
        trainer, batch = self.make(), treadle.Batch.of(PPO)
        found = trainer.loss(batch, "nll")
        out = treadle.Batch(3)
        self.assertEqual(trainer.gradients(batch, treadle.Loss("nll"), out=out), found)
        self.assertEqual((found.tokens, found.loss), (9, found.nll / 9))
        self.assertAlmostEqual(-out["log_probs"].numpy().astype(float).sum(), found.nll, places=5)
        norm, digest = trainer.norm(), trainer.grad_digest()
        mine = trainer.gradients(batch, nll)
        self.assertAlmostEqual(mine.loss, found.loss, places=6)
        self.assertAlmostEqual(trainer.norm(), norm, places=6)
        before = trainer.weights_digest()
        step = trainer.step(lr=1e-3, weight_decay=0.1, clip_grad=1.0)
        self.assertEqual((step.skipped, step.steps), (False, 1))
        self.assertNotEqual(trainer.weights_digest(), before)
        figures = trainer.update(batch, "nll", lr=1e-3)
        self.assertLess(figures.loss, found.loss)
        self.assertEqual((figures.steps, figures.tokens), (2, 9))
        with self.assertRaises(AttributeError):
            figures.loss = 1
        self.assertNotEqual(trainer.grad_digest(), digest)
        ppo = trainer.update(batch, treadle.Loss(entropy_coeff=0.01), treadle.Forward(entropies=True), lr=0.0)
        self.assertTrue(ppo.entropy > 0 and ppo.pg_loss != 0 and ppo.steps == 3)
        self.assertGreater(trainer.nbytes, 4 * self.layout.window_bytes(0))

    def test_own_loss(self):
        """What a row has, and what may be written."""
        trainer, seen = self.make(), []
        batch = treadle.Batch.of({**ROWS, "mask": [[1, 0, 1], [0, 0], [1, 1, 1, 1]]})

        def loss(row):
            seen.append(row)
            row.losses = [0.5] * row.count
            row.by_log_prob[:] = -1
            row.by_entropy += 0.25

        found = trainer.loss(batch, loss, treadle.Forward(entropies=True, micro_batch_size=1))
        self.assertEqual([(row.row, row.count) for row in seen], [(0, 2), (2, 4)])
        self.assertEqual((found.loss, found.tokens), (3.0, 6))
        wanted = trainer.logprobs(batch)["log_probs"].tolist()
        self.assertEqual(seen[1].log_probs.tolist(), wanted[2])
        self.assertEqual(seen[0].log_probs.tolist(), [wanted[0][0], wanted[0][2]])
        gc.collect()
        self.assertTrue((seen[0].entropies > 0).all())  # also after the call
        trainer.loss(batch, lambda row: None)

    def test_a_loss_that_fails(self):
        """The call ends with what it raised, and the trainer is as before."""
        trainer, batch = self.make(), treadle.Batch.of(ROWS)
        before = trainer.weights_digest()

        def fail(row):
            if row.row == 1:
                raise Mine("row 1") from ValueError("inner")
            nll(row)

        with self.assertRaisesRegex(Mine, "^row 1$") as caught:
            trainer.update(batch, fail, lr=1.0)
        self.assertIsInstance(caught.exception.__cause__, ValueError)
        with self.assertRaises(SystemExit):
            trainer.update(batch, lambda row: sys.exit(3), lr=1.0)

        def write(**values):
            def loss(row):
                nll(row)
                for name, value in values.items():
                    setattr(row, name, value(row) if callable(value) else value)

            return loss

        def bad(row):
            nll(row)
            if row.row == 2:
                row.losses[1] = float("nan")

        def steep(row):
            nll(row)
            row.by_log_prob[-1] = float("inf")

        for words, loss in (
            ("row 2.*token .*nan", bad),
            ("row 0.*inf", steep),
            (r"row 0: the loss gives losses of shape \[2\]; it must be \[3\]", write(losses=[1, 2])),
            (r"by_log_prob of shape \[\]", write(by_log_prob=1.0)),
            ("losses that are no numbers", write(losses=["x", "y", "z"])),
            ("gives by_entropy; entropies=True", write(by_entropy=lambda row: row.losses)),
            ("row 0: the loss returns a float", lambda row: 1.0),
        ):
            with self.subTest(words=words):
                self.refused(words, trainer.update, batch, loss, lr=1.0)
        self.assertEqual(trainer.weights_digest(), before)
        self.assertEqual(trainer.update(batch, nll, lr=1e-3).steps, 1)

    def test_interrupt(self):
        """In a loss of Python's, and beside it."""
        trainer = self.make()
        before, many = trainer.weights_digest(), treadle.Batch.of(ROWS).repeat(40)

        def slow(row):
            time.sleep(0.05)
            nll(row)

        for loss in (slow, nll):
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            begin = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                for _ in range(200):
                    trainer.gradients(many, loss)
            self.assertLess(time.monotonic() - begin, 30)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        self.assertEqual(trainer.weights_digest(), before)

    # ---- Files ----

    def test_save_and_resume(self):
        trainer, batch = self.make(), treadle.Batch.of(ROWS)
        trainer.update(batch, "nll", lr=1e-3)
        folder = os.path.join(self.folder, "saved", "here")
        trainer.save(folder)
        saved = trainer.weights_digest()
        self.assertEqual(sorted(os.listdir(folder)), ["huggingface", "optimizer"])
        wanted = [trainer.update(batch, "nll", lr=1e-3), trainer.weights_digest()]
        other = treadle.Trainer(treadle.Layout(self.layout.model, "megatron", 1), threads=1)
        other.resume(folder)
        self.assertEqual(other.weights_digest(), saved)
        self.assertEqual([other.update(batch, "nll", lr=1e-3), other.weights_digest()], wanted)
        other.randomise(7)
        digest = other.weights_digest()
        trainer.randomise(7)
        self.assertEqual(trainer.weights_digest(), digest)
        other.close()
        path = os.path.join(self.folder, "gradients.safetensors")
        trainer.gradients(batch, "nll")
        trainer.save_gradients(path)
        self.assertGreater(os.path.getsize(path), trainer._layout.model.elems * 4)
        self.refused("none", trainer.resume, os.path.join(self.folder, "none"), kind=treadle.Error)
        trainer.load()

    # ---- What is refused ----

    def test_refused(self):
        trainer, batch = self.make(), treadle.Batch.of(ROWS)
        update, loss = trainer.update, trainer.loss
        self.refused("loss 'pop'", loss, batch, "pop")
        self.refused("loss is a int", loss, batch, 3)
        self.refused("aggregation 'x'", loss, treadle.Batch.of(PPO), treadle.Loss(aggregation="x"))
        self.refused("clip_c is -1", loss, treadle.Batch.of(PPO), treadle.Loss(clip_c=-1))
        self.refused("no column 'rollout_log_probs'", loss, batch, treadle.Loss())
        self.refused("entropies", loss, treadle.Batch.of(PPO), treadle.Loss(entropy_coeff=1.0))
        self.refused("one of the two", loss, batch, "nll", treadle.Forward(1, 2))
        self.refused("forward is a int", loss, batch, "nll", 3)
        self.refused("row 0", loss, treadle.Batch.of({"ids": [[1, 512]]}), "nll")
        self.refused("a list; it must be a treadle.Batch", loss, [[1, 2]], "nll")
        self.refused("ids", loss, treadle.Batch.of({"prompt_ids": [[1]]}), "nll")
        self.refused("out has 2 rows", update, batch, "nll", lr=1.0, out=treadle.Batch(2))
        self.refused("lr", update, batch, "nll", lr=-1.0)
        self.refused("seed is -1", trainer.randomise, -1)
        self.refused("kernels", treadle.Trainer, self.layout, kernels="no such kernels")
        with treadle.Trainer(self.layout, threads=1, most_rows=256, kernels="plain") as plain:
            plain.randomise(1)
            self.assertGreater(plain.update(batch, "nll", lr=1e-3).loss, 0)
        with self.assertRaises(TypeError):
            update(batch, "nll")
        self.refused("norm_length is inf", loss, treadle.Batch.of(PPO), treadle.Loss(norm_length=float("inf")))
        self.refused("nothing", trainer.gradients, batch, self.failing)
        with self.assertRaisesRegex(treadle.State, "the last call of treadle_trainer_gradients failed"):
            trainer.step(lr=1e-3)
        self.assertEqual(update(batch, "nll", lr=1e-3).steps, 1)
        bare = treadle.Trainer(self.layout, threads=1, most_rows=256, optimizer=False)
        self.addCleanup(bare.close)
        self.refused("no weights", bare.loss, batch, "nll", kind=treadle.State)
        bare.load()
        self.refused("optimizer", bare.update, batch, "nll", lr=1.0, kind=treadle.State)

    def test_one_call_at_a_time(self):
        trainer, batch, said = self.make(), treadle.Batch.of(ROWS), []

        def loss(row):
            for call in (trainer.norm, trainer.close):
                with self.assertRaises(treadle.State) as caught:
                    call()
                said.append(str(caught.exception))

        trainer.loss(batch, loss)
        self.assertEqual(said[0], "norm: another call of this trainer runs: wait for it first")
        self.assertEqual(said[1], "close: a call of this trainer runs: wait for it first")

    def test_closed(self):
        with self.make() as trainer:
            pass
        for call in (trainer.load, trainer.norm, lambda: trainer.loss(treadle.Batch.of(ROWS), "nll")):
            self.refused("the trainer is closed", call, kind=treadle.State)
        with self.assertRaisesRegex(TypeError, r"^a treadle.Trainer cannot be pickled: save\(\) it, and make one"):
            pickle.dumps(trainer)
        other = self.make()
        told = weakref.ref(other._object)
        self._cleanups.clear()
        del other
        self.assertIsNone(told())

    # ---- Ranks ----

    def test_ranks(self):
        alone = treadle.Group.alone()
        with treadle.Trainer(treadle.Layout(self.layout.model, "fsdp2", 1), alone, threads=1) as trainer:
            trainer.load()
            forward, batch = treadle.Forward(micro_batch_size=1), treadle.Batch.of(PPO)
            wanted = [list(trainer.update(batch, loss, forward, lr=1e-3)) for loss in ("nll", nll, treadle.Loss())]
            digest = f"{trainer.weights_digest():x}"
        for layout in ("fsdp2:dp=2", "megatron:tp=2"):
            with self.subTest(layout=layout):
                answers = ranks.run(2, "test_trainer", "on_ranks", self.model, layout)
                halves = layout.startswith("fsdp2")
                self.assertEqual([answer[0] for answer in answers], [[0, 1], [1, 3]] if halves else [[0, 3]] * 2)
                for _, found, theirs, _, said in answers:
                    self.assertEqual(found, wanted)
                    self.assertEqual(theirs, digest)
                    self.assertRegex(said, "^Mine: row 0 of rank|^System: rank .*Mine: row 0 of rank")
                self.assertEqual(sum(answer[3] for answer in answers), 2 if halves else 1)

    def test_one_rank_is_refused(self):
        (words, loss, rows), (words_1, loss_1, rows_1) = ranks.run(2, "test_trainer", "refused_on_1", self.model)
        wanted = [
            "State: gradients: the batch is closed",
            "Refused: loss is a int; it must be",
            "Refused: gradients: out is a str; it must be a treadle.Batch or None",
            "Refused: forward is a str; it must be a treadle.Forward or None",
            "Refused: lr is None: ",
            "Refused: randomise: the seed is 1.5; it must be an int",
            "Refused: trainer: threads is 'x': ",
            "Refused: gather: the batch is a str; it must be a treadle.Batch",
        ]
        for start, told, own in zip(wanted, words, words_1, strict=False):
            self.assertTrue(own.startswith(start), own)
            self.assertEqual(told, own.replace(": ", ": rank 1: ", 1))
        for start, told, own in zip(
            (
                "treadle_trainer_loss: ranks 0 and 1 must be given the same forward options, and were not",
                "ranks 0 and 1 are in treadle_trainer_loss of two different objects",
                "treadle_trainer_randomise: ranks 0 and 1 must be given the same seed, and were not",
                "rank 0 is in treadle_trainer_load, and rank 1 in treadle_trainer_weights_digest",
                "treadle_trainer_create: ranks 0 and 1 must be given the same options, and were not",
                "treadle_trainer_create: ranks 0 and 1 must be given the same layout, and were not",
            ),
            words[len(wanted) :],
            words_1[len(wanted) :],
            strict=True,
        ):
            self.assertTrue(told.startswith(f"Refused: {start}"), told)
            self.assertEqual(told, own)
        self.assertEqual((loss, rows), (loss_1, rows_1))
        self.assertEqual(rows, 6)


if __name__ == "__main__":
    unittest.main()
