"""Whole runs: the figures of the command, functions of Python's, and how these and Ctrl-C stop a run."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

import ranks

import treadle
from treadle import _abi

SEQUENCE = pathlib.Path(__file__).resolve().parents[2] / "examples/sequence"
RL = """
megatron_training:
  tokenizer_name_or_path: {sequence}
  data_path: {folder}/data/train.jsonl
  val_path: {folder}/data/test.jsonl
  train_iters: 3
  global_batch_size: 4
  save_interval: 0
actor_config:
  model: {sequence}/policy
  save: {folder}/run
  micro_batch_size: 4
  lr: 1.0e-3
generate_config:
  sampling_config: {{max_tokens: 12}}
rl_config:
  n_samples_per_prompt: 2
  max_prompt_length: 10
  mini_batch_size: 2
  use_kl_loss: true
  init_kl_coef: 0.05
  verifier_function: [sequence]
"""
SFT = """
megatron_training:
  tokenizer_name_or_path: {sequence}
  data_path: {folder}/data/sft.jsonl
  train_iters: 4
  global_batch_size: 8
actor_config:
  model: {sequence}/config.json
  save: {folder}/run
  micro_batch_size: 4
  lr: 1.0e-3
"""


class Mine(Exception):
    pass


def command(*words):
    said = subprocess.run([sys.executable, "-m", "treadle", *words, "--json"], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def run(kind, name, config, *arguments, **options):
    """With notes left alone, since weights that are made up are told of."""
    return getattr(treadle, kind)(config, [f"actor_config.save={name}", *arguments], threads=1, note=str, **options)


# ---- Ranks of groups ----


def stopped_by_rank_0(rank, size, name, config, folder):
    group = treadle.Group.join(name, rank, size)
    told = []

    def progress(step):
        told.append(step.step)
        if step.step:
            raise Mine(step.step)

    try:
        figures = run("train", folder, config, group=group, progress=progress)
    except Mine as error:
        return ["Mine", error.args, told]
    return [figures.stopped, os.path.basename(figures.checkpoint), told]


def interrupted_on_rank_1(rank, size, name, config, folder):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    group = treadle.Group.join(name, rank, size)
    stop = (lambda: os.kill(os.getpid(), signal.SIGINT)) if rank == 1 else None
    try:
        figures = run("train", folder, config, "megatron_training.train_iters=1000", group=group, stop=stop)
    except KeyboardInterrupt:
        return "KeyboardInterrupt"
    return figures.stopped


def of_another_config(rank, size, name, config, folder):
    group = treadle.Group.join(name, rank, size)
    try:
        run("sft", folder, config if rank else config + ".none", group=group)
    except treadle.Error as error:
        return [type(error).__name__, str(error)]


def evaluated(rank, size, name, folder, stops):
    group = treadle.Group.join(name, rank, size, timeout=20)
    model, data = SEQUENCE / "policy", os.path.join(folder, "data/test.jsonl")
    stop = (lambda: True) if stops and rank == 0 else None
    try:
        figures = treadle.evaluate(model, data, "sequence", group=group, threads=1, note=str, stop=stop)
    except treadle.Error as error:
        return type(error).__name__
    return list(figures)


class TestRuns(ranks.Interruptible):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="treadle-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        command("data", "sequence", "--out", os.fspath(cls.folder / "data"))
        for name, lines in (("test", 24), ("sft", 64)):
            path = cls.folder / f"data/{name}.jsonl"
            path.write_text("".join(path.read_text().splitlines(True)[:lines]))
        for name, text in (("rl", RL), ("sft", SFT)):
            (cls.folder / f"{name}.yaml").write_text(text.format(sequence=SEQUENCE, folder=cls.folder))
        cls.rl, cls.sft = os.fspath(cls.folder / "rl.yaml"), os.fspath(cls.folder / "sft.yaml")

    def name(self, part="run"):
        return os.fspath(self.folder / f"{self.id().rsplit('.', 1)[-1]}-{part}")

    # ---- Figures ----

    def test_fields(self):
        """Those of the library, in its order."""
        for kind, struct in (
            (treadle.TrainStep, _abi.treadle_rl_step),
            (treadle.TrainFigures, _abi.treadle_rl_figures),
            (treadle.SftStep, _abi.treadle_sft_step),
            (treadle.SftFigures, _abi.treadle_sft_figures),
            (treadle.EvalFigures, _abi.treadle_eval_figures),
        ):
            self.assertEqual(kind._fields, tuple(name for name, *_ in struct._fields_ if name != "struct_size"))

    def test_train(self):
        steps, done, notes = [], [], []
        figures = treadle.train(
            pathlib.Path(self.rl),
            [f"actor_config.save={self.name()}", "megatron_training.test_interval=3"],
            progress=steps.append,
            doing=lambda *given: done.append(given),
            note=notes.append,
            threads=1,
        )
        self.assertEqual([(step.step, step.steps) for step in steps], [(0, 3), (1, 3), (2, 3), (3, 3)])
        self.assertEqual([step.tested for step in steps], [True, False, False, True])
        self.assertEqual([step.val_reward is None for step in steps], [False, True, True, False])
        self.assertEqual([step.checkpoint for step in steps[:3]], [None, None, None])
        self.assertEqual(steps[3].checkpoint, figures.checkpoint)
        self.assertTrue(os.path.isdir(os.path.join(figures.checkpoint, "actor/huggingface")))
        self.assertTrue(all(isinstance(step.kl, float) and step.entropy is not None for step in steps[1:]))
        self.assertTrue(steps[0].kl is None and not any(step.skipped for step in steps))
        self.assertEqual((figures.steps, figures.last_step, figures.stopped, figures.weights), (3, 3, False, "files"))
        self.assertEqual((figures.val_first, figures.val_last), (steps[0].val_reward, steps[3].val_reward))
        self.assertTrue(all(isinstance(what, str) and isinstance(at, int) for what, at, _ in done) and done)
        theirs = command("train", self.rl, f"actor_config.save={self.name('command')}", "--threads", "1")
        self.assertEqual(f"{figures.weights_digest:016x}", theirs["weights_digest"])
        self.assertEqual(f"{figures.losses_digest:016x}", theirs["losses_digest"])
        with self.assertRaises(AttributeError):
            figures.steps = 4

    def test_sft(self):
        steps = []
        figures = run("sft", self.name(), self.sft, progress=steps.append)
        self.assertEqual([step.step for step in steps], [1, 2, 3, 4])
        self.assertEqual((steps[0].loss, steps[3].loss), (figures.loss_first, figures.loss_last))
        self.assertEqual({step.val_loss for step in steps}, {None})
        self.assertEqual(figures.weights, "random")
        theirs = command("sft", self.sft, f"actor_config.save={self.name('command')}", "--threads", "1")
        self.assertEqual(f"{figures.weights_digest:016x}", theirs["weights_digest"])
        again = run("sft", self.name(), self.sft, resume="auto")
        self.assertEqual((again.steps, again.last_step, again.loss_first), (0, 4, None))
        with self.assertRaisesRegex(treadle.Refused, "run"):
            run("sft", self.name(), self.sft)

    def test_evaluate(self):
        arguments = SEQUENCE / "policy", self.folder / "data/test.jsonl", "sequence"
        figures = treadle.evaluate(*arguments, samples=2, seed=3, threads=1)
        theirs = command("eval", os.fspath(arguments[0]), "--data", os.fspath(arguments[1]),
                         "--reward", "sequence", "--n", "2", "--seed", "3", "--threads", "1")  # fmt: skip
        self.assertEqual((figures.rows, figures.samples, figures.left_out), (24, 2, 0))
        self.assertEqual((figures.mean, figures.best), (theirs["mean@2"], theirs["best@2/mean"]))
        self.assertEqual(figures.weights, "files")
        greedy = treadle.evaluate(*arguments, temperature=0, max_tokens=4, group=treadle.Group.alone(), threads=1)
        self.assertLessEqual(greedy.response_length, 4)

    def test_notes(self):
        """Without note= they are warnings, which a program may make errors of."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            treadle.sft(self.sft, [f"actor_config.save={self.name()}", "megatron_training.train_iters=1"], threads=1)
        self.assertTrue(any("made up" in str(one.message) or "random" in str(one.message) for one in caught), caught)
        notes = []
        treadle.sft(self.sft, [f"actor_config.save={self.name('told')}", "megatron_training.train_iters=1"], threads=1,
                    note=notes.append)  # fmt: skip
        self.assertEqual(notes, [str(one.message) for one in caught])

    # ---- How a run ends early ----

    def test_stop_and_resume(self):
        whole = run("train", self.name("whole"), self.rl)
        asked = []
        part = run("train", self.name(), self.rl, stop=lambda: asked.append(1) or len(asked) > 1)
        self.assertTrue(part.stopped and part.last_step < 3 and part.checkpoint)
        rest = run("train", self.name(), self.rl, resume="auto")
        self.assertEqual((rest.steps, rest.weights_digest), (3 - part.steps, whole.weights_digest))
        again = run("train", self.name("again"), self.rl, resume=part.checkpoint)
        self.assertEqual(again.weights_digest, whole.weights_digest)

    def test_raised(self):
        """By any function, in the middle of a run: it stops with a checkpoint, and nobody is called again."""
        for kind, config, name in (
            ("train", self.rl, "progress"),
            ("train", self.rl, "doing"),
            ("train", self.rl, "stop"),
            ("sft", self.sft, "progress"),
            ("sft", self.sft, "stop"),
        ):
            for error in (Mine("é\0"), SystemExit(3), treadle.Refused("mine"), KeyboardInterrupt()):
                calls = []

                def fail(*_given, calls=calls, error=error):
                    calls.append(1)
                    raise error

                place = self.name(f"{kind}-{name}-{type(error).__name__}")
                with self.assertRaises(type(error)) as raised:
                    run(kind, place, config, **{name: fail})
                self.assertIs(raised.exception, error)
                self.assertEqual(calls, [1], (kind, name))
                self.assertTrue(any(found.startswith("global_step_") for found in os.listdir(place)), (kind, name))

    def test_raised_in_evaluate(self):
        for name in ("doing", "stop"):

            def fail(*_given):
                raise Mine

            with self.assertRaises(Mine):
                treadle.evaluate(
                    SEQUENCE / "policy", self.folder / "data/test.jsonl", "sequence", threads=1, **{name: fail}
                )
        with self.assertRaises(treadle.Cancelled):
            treadle.evaluate(
                SEQUENCE / "policy", self.folder / "data/test.jsonl", "sequence", threads=1, stop=lambda: True
            )

    def test_interrupted(self):
        for kind, config in (("train", self.rl), ("sft", self.sft)):
            place, steps = self.name(kind), []

            def progress(step, steps=steps):
                steps.append(step.step)
                if step.step == 2:
                    os.kill(os.getpid(), signal.SIGINT)

            with self.assertRaises(KeyboardInterrupt):
                run(kind, place, config, "megatron_training.train_iters=1000", progress=progress)
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
            self.assertIn("global_step_3", os.listdir(place))  # it is asked before progress tells of a step
            self.assertEqual(steps[-2:], [2, 3])
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            treadle.evaluate(
                SEQUENCE / "policy",
                self.folder / "data/test.jsonl",
                "sequence",
                threads=1,
                samples=10000,
                doing=lambda *_: os.kill(os.getpid(), signal.SIGINT),
            )
        self.assertLess(time.monotonic() - begin, 20)  # of minutes

    def test_other_threads_run(self):
        """Also of a run that is not in the main thread, where there are no signals."""
        made = []
        thread = threading.Thread(target=lambda: made.append(run("sft", self.name(), self.sft)))
        thread.start()
        counted = 0
        while thread.is_alive():
            counted += 1
            time.sleep(0.001)
        self.assertEqual(made[0].last_step, 4)
        self.assertGreater(counted, 5)

    def test_group_is_taken(self):
        group, said = treadle.Group.alone(), []

        def progress(_step):
            try:
                group.barrier()
            except treadle.State as error:
                said.append(str(error))

        run("sft", self.name(), self.sft, group=group, progress=progress)
        self.assertEqual(len(said), 4)
        self.assertRegex(said[0], "the group is used by treadle_sft_run .*, which runs")
        group.barrier()

    def test_refused(self):
        for words, kind, arguments, options in (
            ("train_iter", "train", ["megatron_training.train_itters=1"], {}),
            ("section.key=value", "sft", ["x"], {}),
            ("zero character", "sft", ["a\0"], {}),
            ("threads", "train", [], {"threads": -1}),
            ("threads is 4294967296", "sft", [], {"threads": 1 << 32}),
            ("global_step_9", "train", [], {"resume": "global_step_9"}),
            ("no such kernels|kernels", "sft", [], {"kernels": "no such kernels"}),
            ("fit|bytes", "sft", [], {"budget": 1}),
        ):
            config = self.rl if kind == "train" else self.sft
            with self.assertRaisesRegex(treadle.Error, words):
                getattr(treadle, kind)(
                    config, [f"actor_config.save={self.name()}", *arguments], **{"threads": 1, "note": str, **options}
                )
            self.assertFalse(os.path.exists(os.path.join(self.name(), "global_step_1")))
        with self.assertRaises(treadle.System):
            treadle.train(self.folder / "none.yaml")
        with self.assertRaisesRegex(treadle.Refused, "reward"):
            treadle.evaluate(SEQUENCE / "policy", self.folder / "data/test.jsonl", "sequences")

    # ---- Ranks ----

    def test_ranks(self):
        answers = ranks.run(2, "test_runs", "stopped_by_rank_0", self.rl, self.name())
        self.assertEqual(answers, [["Mine", [1], [0, 1]], [True, "global_step_2", []]])
        answers = ranks.run(2, "test_runs", "interrupted_on_rank_1", self.rl, self.name("interrupted"))
        self.assertEqual(answers, [True, "KeyboardInterrupt"])
        answers = ranks.run(2, "test_runs", "of_another_config", self.sft, self.name("another"))
        self.assertEqual([answer[0] for answer in answers], ["System", "Peer"])
        self.assertIn("none", answers[1][1])

    def test_ranks_evaluate(self):
        rank_0, rank_1 = ranks.run(2, "test_runs", "evaluated", os.fspath(self.folder), False)
        self.assertEqual(rank_0[0], 24)
        self.assertEqual(rank_0[:7] + rank_0[8:], rank_1[:7] + rank_1[8:])  # without seconds
        rank_0, rank_1 = ranks.run(2, "test_runs", "evaluated", os.fspath(self.folder), True)
        self.assertEqual(rank_0, "Cancelled")
        self.assertIn(rank_1, ("Cancelled", "Peer"))

    def test_libraries_are_loaded_when_used(self):
        said = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, treadle; from treadle import _library; treadle.train, treadle.Tokenizer\n"
                "print(sorted(_library._libraries))\n"
                "try: treadle.Tokenizer('/nothing')\n"
                "except treadle.Error: print(sorted(_library._libraries))\n"
                "try: treadle.train('/nothing')\n"
                "except treadle.Error: print(sorted(_library._libraries))\n"
                "print([name for name in ('numpy', 'torch', 'yaml') if name in sys.modules])",
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        self.assertEqual(
            said,
            "[]\n['treadle', 'treadle_engine']\n['treadle', 'treadle_engine', 'treadle_loop']\n[]\n",
        )


if __name__ == "__main__":
    unittest.main()
