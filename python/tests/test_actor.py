"""The actor: with the engines that are built in, and with a generator of Python's, also one that does not do as it
should."""

import gc
import importlib.util
import os
import pickle
import signal
import threading
import time
import unittest
import weakref

import numpy
import ranks
from test_trainer import Mine, nll

import treadle
from treadle import _abi

HAS_TORCH = importlib.util.find_spec("torch") is not None
PROMPTS = [[3, 1, 4], [9, 2], [6]]
TOKENS = [7, 8, 2]
OPTIONS = treadle.TrainerOptions(threads=1, most_rows=256)
ENGINE = treadle.GeneratorOptions(threads=1, max_len=64)
GREEDY = treadle.Sampling(temperature=0, n=2, max_tokens=5, ignore_eos=True)


class Fixed:
    """Answers with the same tokens, and the log-probabilities that a generator finds on the weights it is given."""

    def __init__(self, layout):
        self.scorer = treadle.Generator(layout, threads=1, kv_bytes=1 << 20, max_len=64)
        self.calls, self.seen = [], []
        self.weights = self.fails = self.change = None

    def call(self, name):
        self.calls.append(name)
        if self.fails == name:
            self.fails = None
            raise Mine(f"{name} does not want to") from ValueError("inner")

    def bind(self, tensors):
        self.call("bind")
        self.weights = tensors
        self.scorer.bind(tensors)

    def unbind(self):
        self.call("unbind")
        self.scorer.unbind()

    def close(self):
        self.call("close")
        self.weights = None
        self.scorer.close()

    def generate(self, prompts, sampling):
        self.call("generate")
        self.seen.append((prompts, sampling))
        n = sampling.n if sampling is not None else 1
        texts = [prompt + TOKENS for prompt in prompts["prompt_ids"].tolist() for _ in range(n)]
        scores = [score[-len(TOKENS) :] for score in self.scorer.score(texts)]
        columns = {
            "ids": [TOKENS] * len(texts),
            "rollout_log_probs": scores,
            "finish": ["stop"] * len(texts),
        }
        return self.change(columns) if self.change is not None else treadle.Batch.of(columns)


def rows_of(answers, n):
    batch = treadle.Batch.of({"prompt_ids": PROMPTS}).repeat(n)
    batch.union(answers)
    batch["advantage"] = numpy.linspace(-1, 1, len(batch))
    return batch


def on_ranks(rank, size, name, folder, kind):
    """Each rank gives its rows."""
    model, group = treadle.Model(folder), treadle.Group.join(name, rank, size, timeout=60)
    train, infer = treadle.Layout(model, "fsdp2", size), treadle.Layout(model, "vllm:tp=1", size)
    options = {"generator": Fixed(treadle.Layout(model, "vllm", 1))} if kind == "fixed" else {"engine": ENGINE}
    with treadle.Actor(train, infer, group, trainer=OPTIONS, kv_bytes=1 << 20, **options) as actor:
        actor.load()
        mine, numbers, leads = actor.slice_prompts(treadle.Batch.of({"prompt_ids": PROMPTS}))
        if kind == "fixed" and rank == 1:
            options["generator"].fails = "generate"
        said = ""
        try:
            answers = actor.generate(mine, GREEDY)
        except (Mine, treadle.System) as error:
            said = f"{type(error).__name__}: {error}"
            answers = actor.generate(mine, GREEDY)
        refused = ranks.said(lambda: actor.generate(mine, 5 if rank == 1 else GREEDY))
        if kind == "own":  # a stop, and another call
            said = ranks.said(lambda: actor.generate(mine, GREEDY, stop=(lambda: True) if rank == 1 else None))
            if actor.generate(mine, GREEDY)["ids"].tolist() != answers["ids"].tolist():
                said = "other answers"
        whole = treadle.Batch.of({"prompt_ids": [[3, 1, 4], [9, 2]], "ids": [[5, 6], [7, 8, 9]]})
        forward = treadle.Forward(micro_batch_size=1)
        rows = actor.slice(whole, forward)
        figures = actor.update(rows.batch, "nll", forward, lr=1e-3)
        return [
            [numbers.start, numbers.stop, leads],
            answers["ids"].tolist(),
            [rows.rows.start, rows.rows.stop],
            figures,
            f"{actor.weights_digest():x}",
            said,
            refused,
        ]


class TestActor(ranks.Folder, ranks.Interruptible):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.train = treadle.Layout(treadle.Model(cls.model), "megatron", 1)
        cls.infer = treadle.Layout(cls.train.model, "vllm", 1)

    def make(self, **options):
        if "generator" not in options:
            options = {"engine": ENGINE, "kv_bytes": 1 << 20, **options}
        made = treadle.Actor(self.train, self.infer, trainer=OPTIONS, **options)
        self.addCleanup(made.close)
        return made

    def refused(self, words, call, *arguments, kind=treadle.Refused, **named):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **named)

    # ---- With the engines that are built in ----

    def test_a_step(self):
        """The same as by a trainer and a generator of their own."""
        reference = treadle.Layout(self.train.model, "megatron", 1)
        actor = self.make(reference=reference)
        self.refused("no weights", actor.generate, PROMPTS, kind=treadle.State)
        actor.load()
        actor.load_reference()
        answers = actor.generate(PROMPTS, GREEDY)
        batch = rows_of(answers, 2)
        numpy.testing.assert_array_equal(
            actor.log_probs(batch)["log_probs"].numpy(), answers["rollout_log_probs"].numpy()
        )
        figures = actor.update(batch, treadle.Loss(), lr=1e-3, clip_grad=1.0)
        changed = actor.log_probs(batch)["log_probs"].numpy()
        self.assertFalse((changed == answers["rollout_log_probs"].numpy()).any())
        numpy.testing.assert_array_equal(
            actor.ref_log_probs(batch)["log_probs"].numpy(), answers["rollout_log_probs"].numpy()
        )
        with treadle.Trainer(self.train, threads=1, most_rows=256) as trainer:
            trainer.load()
            self.assertEqual(trainer.update(batch, treadle.Loss(), lr=1e-3, clip_grad=1.0), figures)
            self.assertEqual(trainer.weights_digest(), actor.weights_digest())
            path = os.path.join(self.folder, "actor")
            actor.save(path)
            trainer.resume(path)
            self.assertEqual(trainer.weights_digest(), actor.weights_digest())
            wanted = trainer.update(batch, nll, lr=1e-3)
            self.assertEqual(actor.update(batch, nll, lr=1e-3), wanted)
        digest = actor.weights_digest()
        actor.resume(path)
        self.assertNotEqual(actor.weights_digest(), digest)
        actor.randomise(3)
        self.assertEqual(actor.generate(PROMPTS, GREEDY)["version"].tolist(), [actor.info().version] * 6)
        with self.assertRaisesRegex(Mine, "^mine$"):
            actor.update(batch, lambda row: (_ for _ in ()).throw(Mine("mine")), lr=1.0)
        self.assertEqual(actor.update(batch, "nll", lr=1e-3).steps, 1)

    def test_modes(self):
        actor = self.make()
        self.refused("no weights", actor.enter, "train", kind=treadle.State)
        actor.load()
        self.assertEqual(actor.info().mode, "train")
        batch = treadle.Batch.of({"prompt_ids": PROMPTS, "ids": [[1, 2]] * 3})
        with actor.mode("infer") as same:
            self.assertIs(same, actor)
            self.assertEqual(len(actor.generate(PROMPTS, GREEDY)), 6)
            self.refused("stays in infer mode", actor.update, batch, "nll", lr=1.0, kind=treadle.State)
            self.refused("must first exit infer mode", actor.enter, "train", kind=treadle.State)
        self.refused("it stays in none", actor.exit, "infer", kind=treadle.State)
        self.assertEqual(actor.info().mode, "infer")
        with actor.mode("forward"):
            actor.log_probs(batch)
        self.assertEqual(actor.info().mode, "forward")
        self.refused("mode is 'host', and must be one of train", actor.enter, "host")
        with self.assertRaises(Mine), actor.mode("train"):
            raise Mine
        with actor.mode("train"):
            actor.close()
        self.refused("the actor is closed", actor.info, kind=treadle.State)

    def test_info(self):
        actor = self.make()
        actor.load()
        actor.generate(PROMPTS, GREEDY)
        info = actor.info()
        self.assertEqual(
            list(info._fields), [name for name, *_ in _abi.treadle_actor_info._fields_ if name != "struct_size"]
        )
        self.assertEqual((info.mode, info.version, len(info.bytes)), ("infer", 1, _abi.TREADLE_CLASSES))
        self.assertEqual(info.bytes["infer_params"] >= self.infer.window_bytes(0), True)
        self.assertEqual((info.bytes["grads"], info.kv_blocks > 0), (0, True))
        self.assertGreaterEqual(info.peaks["grads"], info.bytes["grads"])
        kept = self.make(offload=(), keep="host")
        kept.load()
        kept.generate(PROMPTS, GREEDY)
        self.assertGreater(kept.info().bytes["grads"], 0)

    def test_refused(self):
        make = self.make
        self.refused("keep is 'both'", make, keep="both")
        self.refused("offload has 'weights', and knows params, grads, optimizer", make, offload="weights")
        words = "trainer is a dict; it must be a treadle.TrainerOptions"
        self.refused(words, treadle.Actor, self.train, self.infer, trainer={})
        self.refused("budget", make, budget_bytes=1)
        self.refused("cap_bytes is -1", make, cap_bytes=-1)
        self.refused("the reference has layout 'hf'", make, reference=treadle.Layout(self.train.model, "hf", 1))
        self.refused("is for 2 ranks", treadle.Actor, self.train, treadle.Layout(self.train.model, "vllm:tp=2", 2))
        actor = make()
        self.refused("without a reference", actor.load_reference, kind=treadle.State)
        with self.assertRaisesRegex(TypeError, r"^a treadle.Actor cannot be pickled: save\(\) it, and make one"):
            pickle.dumps(actor)

    # ---- With a generator of Python's ----

    def test_a_generator(self):
        generator = Fixed(self.infer)
        actor = self.make(generator=generator)
        self.assertEqual(generator.calls, [])
        actor.load()
        answers = actor.generate(PROMPTS, treadle.Sampling(n=2, seed=5, stop_token_ids=(2,)))
        self.assertEqual(generator.calls, ["bind", "generate"])
        ((prompts, sampling),) = generator.seen
        self.assertEqual(sampling, treadle.Sampling(n=2, seed=5, stop_token_ids=(2,)))
        self.assertEqual(prompts["prompt_ids"].tolist(), PROMPTS)
        self.assertEqual(answers["ids"].tolist(), [TOKENS] * 6)
        batch = rows_of(answers, 2)
        numpy.testing.assert_array_equal(
            actor.log_probs(batch)["log_probs"].numpy(), answers["rollout_log_probs"].numpy()
        )
        self.assertEqual(generator.calls, ["bind", "generate", "unbind"])
        actor.update(batch, treadle.Loss(), lr=1e-3)
        again = actor.generate(PROMPTS)
        self.assertIsNone(generator.seen[-1][1])
        self.assertEqual(generator.calls[3:], ["bind", "generate"])
        numpy.testing.assert_array_equal(
            again["rollout_log_probs"].numpy(), actor.log_probs(batch[::2])["log_probs"].numpy()
        )
        self.assertEqual(generator.seen[0][0]["prompt_ids"].tolist(), PROMPTS)  # may be kept
        self.assertEqual(len(actor.generate([], GREEDY)), 0)
        actor.close()
        actor.close()
        self.assertEqual(generator.calls[-2:], ["unbind", "close"])
        self.assertEqual(generator.calls.count("close"), 1)

    def test_weights_without_a_copy(self):
        generator = Fixed(self.infer)
        actor = self.make(generator=generator)
        actor.load()
        actor.generate(PROMPTS)
        weights = generator.weights
        self.assertEqual(list(weights), [storage.name for storage in self.infer.storages(0)])
        name = "model.norm.weight"
        shown = weights[name].numpy()
        self.assertEqual((shown.dtype, shown.shape, shown.flags.writeable), (numpy.uint16, (256,), False))
        self.assertEqual(shown.ctypes.data, weights[name].address)
        self.assertEqual(weights.read()[name].tolist(), shown.tolist())
        self.refused("read-only", weights[name].write, shown)
        self.refused("only windows of a switch|handles", weights.handle)
        if HAS_TORCH:
            self.assertEqual(weights.torch()[name].data_ptr(), shown.ctypes.data)
        actor.log_probs(treadle.Batch.of({"prompt_ids": PROMPTS, "ids": [[1]] * 3}))
        self.refused("not bound", weights[name].read, kind=treadle.State)
        actor.generate(PROMPTS)
        self.assertIs(generator.weights, weights)
        before = shown.tolist()
        told = weakref.ref(actor._object)
        actor.close()
        for call in (weights[name].numpy, weights[name].read):
            self.refused("it is closed", call, kind=treadle.State)
        self.assertEqual(len(before), len(shown))  # its memory is there as long as an array shows it
        del weights, shown, generator, actor, call
        self._cleanups.clear()
        gc.collect()
        self.assertIsNone(told())

    def test_a_generator_that_fails(self):
        generator = Fixed(self.infer)
        actor = self.make(generator=generator, keep="host")
        actor.load()
        batch = treadle.Batch.of({"prompt_ids": PROMPTS, "ids": [[1]] * 3})
        for name in ("bind", "generate", "unbind"):
            with self.subTest(name=name):
                generator.fails = name
                with self.assertRaisesRegex(Mine, f"^{name} does not want to$") as caught:
                    actor.generate(PROMPTS)
                    actor.log_probs(batch)
                self.assertIsInstance(caught.exception.__cause__, ValueError)
                self.assertEqual(len(actor.generate(PROMPTS)), 3)
                actor.log_probs(batch)
        actor.generate(PROMPTS)
        generator.fails = "unbind"
        self.assertRaises(Mine, actor.weights_digest)
        del generator.calls[:]
        actor.generate(PROMPTS)
        self.assertEqual(generator.calls, ["bind", "generate"])  # it may have let go of the weights
        generator.change = lambda columns: exit(3)
        with self.assertRaises(SystemExit):
            actor.generate(PROMPTS)

        def refuse(_columns):
            raise treadle.Refused("not these prompts")

        generator.change = refuse
        self.refused("^not these prompts$", actor.generate, PROMPTS)
        self.assertEqual(actor.update(batch, "nll", lr=1e-3).steps, 1)

    def test_answers_that_are_refused(self):
        """By row and column; the actor goes on."""
        generator = Fixed(self.infer)
        actor = self.make(generator=generator)
        actor.load()
        nan = numpy.array([-1, -1, numpy.nan, -1, -1, -1, -1, -1, -1], numpy.float32)

        short = [[-1] * 3, [-1] * 2, [-1] * 3]

        def batch(**columns):
            return lambda given: treadle.Batch.of({**given, **columns})

        def ragged(values):
            def change(given):
                del given["rollout_log_probs"]
                made = treadle.Batch.of(given)
                made.add("rollout_log_probs", values, offsets=[0, 3, 6, 9])
                return made

            return change

        cases = [
            ("3 answers|gives 2 answers: 1 to each of 3 prompts", lambda given: treadle.Batch.of(given)[:2]),
            ("row 1 of .* has 3 ids, and rollout_log_probs of 2", batch(rollout_log_probs=short)),
            (r"row 0 of .*: rollout_log_probs\[2\] is -?nan", ragged(nan)),
            ("'rollout_log_probs' of ragged fp64", ragged(nan.astype(numpy.float64))),
            ("'ids' of int32", batch(ids=numpy.zeros((3, 3), numpy.int32))),
            ("no column 'finish'", lambda given: treadle.Batch.of({k: v for k, v in given.items() if k != "finish"})),
            ("row 2 of .*: finish is 'eos'", batch(finish=["stop", "length", "eos"])),
            ("answers are a dict; they must be a treadle.Batch with ids", lambda given: given),
            ("answers are a NoneType", lambda given: None),
        ]
        if HAS_TORCH:
            import torch

            cases.append(("device meta; it must be on cpu", ragged(torch.zeros(9, device="meta"))))

        def closed(given):
            made = treadle.Batch.of(given)
            made.close()
            return made

        for words, change in cases:
            with self.subTest(words=words):
                generator.change = change
                self.refused(words, actor.generate, PROMPTS)
        generator.change = closed
        self.refused("the batch is closed", actor.generate, PROMPTS, kind=treadle.State)
        generator.change = ragged(numpy.full(9, -1, numpy.float32))  # memory of the generator's own
        answers = actor.generate(PROMPTS)
        generator.change = None
        gc.collect()
        self.assertEqual(answers["rollout_log_probs"].tolist(), [[-1] * 3] * 3)
        self.assertEqual(len(actor.generate(PROMPTS)), 3)

    def test_calls_inside(self):
        """Of the actor, in a function that its call calls."""
        generator, said = Fixed(self.infer), []
        actor = self.make(generator=generator)
        actor.load()

        def change(columns):
            for call in (actor.info, actor.close, lambda: actor.generate(PROMPTS)):
                with self.assertRaises(treadle.State) as caught:
                    call()
                said.append(str(caught.exception))
            return treadle.Batch.of(columns)

        generator.change = change
        actor.generate(PROMPTS)
        self.assertEqual(said[0], "info: another call of this actor runs: wait for it first")
        self.assertEqual(said[1], "close: a call of this actor runs: wait for it first")

    def test_interrupt(self):
        generator = Fixed(self.infer)
        actor = self.make(generator=generator)
        actor.load()

        def slow(columns):
            time.sleep(30)

        generator.change = slow
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            actor.generate(PROMPTS)
        self.assertLess(time.monotonic() - begin, 20)
        generator.change = None
        self.assertEqual(len(actor.generate(PROMPTS)), 3)

    def test_no_generator(self):
        class Half:
            closed = 0

            def bind(self, tensors): ...

            def close(self):
                self.closed += 1

        self.refused("is a Half, which has no unbind, generate", self.make, generator=Half())
        Half.unbind = Half.generate = Half.bind
        half = Half()
        self.refused("generator= is in its place", self.make, generator=half, engine=ENGINE)
        self.refused("budget", self.make, generator=half, budget_bytes=1)
        self.assertEqual(half.closed, 1)
        self.refused("the reference", self.make, generator=half, reference=treadle.Layout(self.train.model, "hf", 1))
        self.assertEqual(half.closed, 2)

    def test_dropped(self):
        """Without close(), and with tensors that live on."""
        generator = Fixed(self.infer)
        actor = self.make(generator=generator)
        actor.load()
        actor.generate(PROMPTS)
        told, shown = weakref.ref(actor._object), generator.weights["model.norm.weight"].numpy()
        self._cleanups.clear()
        del actor
        gc.collect()
        self.assertGreater(int(shown.sum()), 0)
        generator.scorer.close()
        generator.weights = None
        del shown
        gc.collect()
        self.assertIsNone(told())

    # ---- Ranks ----

    def test_ranks(self):
        wanted = self.make()
        wanted.load()
        ids = wanted.generate(PROMPTS, GREEDY)["ids"].tolist()
        for kind in ("own", "fixed"):
            with self.subTest(kind=kind):
                rank_0, rank_1 = ranks.run(2, "test_actor", "on_ranks", self.model, kind)
                self.assertEqual([rank_0[0], rank_1[0]], [[0, 1, True], [1, 3, True]])
                self.assertEqual(rank_0[1] + rank_1[1], ids if kind == "own" else [TOKENS] * 6)
                self.assertEqual([rank_0[2], rank_1[2]], [[0, 1], [1, 2]])
                self.assertEqual(rank_0[3:5], rank_1[3:5])
                self.assertRegex(rank_0[6], "^Refused: rank 1: generate: sampling is a int; ")
                self.assertRegex(rank_1[6], "^Refused: generate: sampling is a int; ")
                if kind == "own":
                    self.assertEqual(rank_0[5], "Cancelled: rank 1: generation was cancelled")
                    self.assertEqual(rank_1[5], "Cancelled: rank 1: generation was cancelled")
                if kind == "fixed":
                    self.assertEqual(rank_0[5], "System: rank 1: Mine: generate does not want to")
                    self.assertEqual(rank_1[5], "Mine: generate does not want to")


if __name__ == "__main__":
    unittest.main()
