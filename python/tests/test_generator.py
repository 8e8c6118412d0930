"""The built-in generator: its memory, answers and scores; what ends a call; what is refused."""

import ctypes
import dataclasses
import gc
import importlib.util
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

import numpy
import ranks

import treadle
from treadle import _abi

HAS_TORCH = importlib.util.find_spec("torch") is not None
INCLUDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include")
PROMPTS = [[3, 1, 4, 1, 5], [9, 2], [6]]
GREEDY = treadle.Sampling(temperature=0, max_tokens=6, ignore_eos=True)


class Mine(Exception):
    pass


def lists(answers):
    return {name: answers[name].tolist() for name in answers}


def on_ranks(rank, size, name, folder):
    """Two replicas of two ranks each."""
    group = treadle.Group.join(name, rank, size, timeout=60)
    layout = treadle.Layout(treadle.Model(folder), "vllm:tp=2", size)
    with treadle.Generator(layout, group, threads=1, max_len=64, kv_bytes=1 << 20) as generator:
        generator.load()
        mine = PROMPTS[:2] if rank < 2 else []
        answers = lists(generator.generate(mine, GREEDY))
        scores = [score[1:].tolist() for score in generator.score(PROMPTS[:2])]
        said = ""
        try:
            group._enter("a test")
            generator.info()
        except treadle.State as error:
            said = str(error)
        group._leave(True)
        stopped = ranks.said(lambda: generator.generate(mine, GREEDY, stop=(lambda: True) if rank == 1 else None))
        refused = ranks.said(lambda: generator.generate(5 if rank == 3 else mine, GREEDY))
        again = lists(generator.generate(mine, GREEDY))
    return [answers["ids"], answers["rollout_log_probs"], scores, said, stopped, refused, again == answers]


class TestGenerator(ranks.Folder, ranks.Interruptible):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.layout = treadle.Layout(treadle.Model(cls.model), "vllm", 1)

    def make(self, **options):
        made = treadle.Generator(self.layout, threads=1, max_len=256, kv_bytes=2 << 20, **options)
        self.addCleanup(made.close)
        return made

    def window(self):
        """The bytes of the rank's weights."""
        with treadle.Switch(treadle.Group.alone(), self.layout, self.layout, page=4096) as switch:
            switch.load()
            switch.to_infer()
            room = bytearray(self.layout.window_bytes(0))
            for storage, memory in zip(self.layout.storages(0), switch.infer.values()):
                room[storage.offset_bytes : storage.offset_bytes + storage.bytes] = memory.read_bytes()
        return room

    def refused(self, words, call, *arguments, kind=treadle.Refused, **named):
        with self.assertRaisesRegex(kind, words):
            call(*arguments, **named)

    # ---- Sampling ----

    @unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
    def test_sampling_is_that_of_the_header(self):
        names = [name for name, *_ in _abi.treadle_sampling._fields_]
        fields = [field.name for field in dataclasses.fields(treadle.Sampling)]
        counts = {"struct_size", "stop_token_id_count", "never_count"}
        self.assertEqual(fields, [name for name in names if name not in counts])
        numbers = [name for name in names if name not in ("struct_size", "stop_token_ids", "never")]
        lines = ['#include "treadle_engine.h"', "int main(void) { treadle_sampling s = TREADLE_SAMPLING_INIT;"]
        lines += [f'printf("%g\\n", (double)s.{name});' for name in numbers] + ["}"]
        with tempfile.TemporaryDirectory(prefix="treadle-test-") as folder:
            source, program = os.path.join(folder, "a.c"), os.path.join(folder, "a")
            with open(source, "w", encoding="ascii") as file:
                file.write("#include <stdio.h>\n" + "\n".join(lines))
            subprocess.run(["cc", "-std=c11", "-I", INCLUDE, source, "-o", program], check=True)
            said = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
        made = treadle.Sampling()._struct()
        self.assertEqual([float(text) for text in said], [float(getattr(made, name)) for name in numbers])

    def test_sampling_there_and_back(self):
        given = treadle.Sampling(top_k=-1, n=3, stop_token_ids=(5, 7), never=(1,), logprobs_of="drawn", ignore_eos=True)
        self.assertEqual(treadle.Sampling._of(given._struct()), given)
        self.assertEqual(pickle.loads(pickle.dumps(given)), given)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            given.n = 4

    # ---- Weights ----

    def test_whose_memory(self):
        """load()'s own, and that of the caller, of whatever kind; it is not copied, and stays."""
        generator, room = self.make(), self.window()
        self.refused("no weights: bind it first", generator.generate, PROMPTS, GREEDY, kind=treadle.State)
        generator.load()
        wanted = lists(generator.generate(PROMPTS, GREEDY))
        self.assertEqual(wanted["version"], [1] * 3)
        self.assertEqual(wanted["finish"], ["length"] * 3)
        self.assertEqual([len(row) for row in wanted["ids"]], [6] * 3)

        class Array(numpy.ndarray):
            """One that can be referred to weakly."""

        array = numpy.frombuffer(bytes(room), numpy.uint8).view(Array)
        told = weakref.ref(array)
        given = [room, bytes(room), memoryview(room), array, (ctypes.c_char * len(room)).from_buffer(room)]
        if HAS_TORCH:
            import torch

            given.append(torch.frombuffer(room, dtype=torch.uint8))
        for version, memory in enumerate(given, 2):
            with self.subTest(kind=type(memory).__name__):
                generator.bind(memory)
                answers = lists(generator.generate(PROMPTS, GREEDY))
                self.assertEqual(answers, {**wanted, "version": [version] * 3})
        generator.bind(array)
        del array, given, memory
        gc.collect()
        self.assertIsNotNone(told())
        generator.unbind()
        gc.collect()
        self.assertIsNone(told())
        other = numpy.frombuffer(room, numpy.uint8).copy()
        generator.bind(other)
        before = lists(generator.generate(PROMPTS, GREEDY))["rollout_log_probs"]
        other[: other.size // 2 * 2].view(numpy.uint16)[:] ^= 1
        generator.bind(other)
        self.assertNotEqual(lists(generator.generate(PROMPTS, GREEDY))["rollout_log_probs"], before)

    def test_window_of_a_switch(self):
        generator = self.make()
        generator.load()
        wanted = lists(generator.generate(PROMPTS, GREEDY))
        train = treadle.Layout(self.layout.model, "megatron", 1)
        with treadle.Switch(treadle.Group.alone(), train, self.layout, page=4096) as switch:
            switch.load()
            switch.to_infer()
            generator.bind(switch.infer)
            self.assertEqual(lists(generator.generate(PROMPTS, GREEDY)), {**wanted, "version": [2] * 3})
            generator.unbind()

    def test_refused_memory(self):
        generator = self.make()
        needed = self.layout.window_bytes(0)
        bind, room = generator.bind, bytearray(needed + 8)
        self.refused(f"window of {needed - 1} bytes; the layout has {needed}", bind, room[: needed - 1])
        self.refused("NULL|0 bytes", bind, b"")
        self.refused("is a list, which has neither", bind, [1, 2])
        self.refused("strides", bind, memoryview(room)[::2])
        self.refused("multiple of 4", bind, memoryview(room)[1 : needed + 1])
        self.refused("'files', 'random' or None", generator.load, "file")
        if HAS_TORCH:
            import torch

            self.refused("device meta", bind, torch.zeros(needed, device="meta"))
            self.refused("strides", bind, torch.zeros(needed, 2)[:, 0])
        self.refused("no weights: bind it first", generator.score, PROMPTS, kind=treadle.State)
        generator.load()
        self.refused("bytes; the layout has", bind, bytearray(4))
        self.assertEqual(len(generator.score(PROMPTS)), 3)  # with those of before

    # ---- Texts ----

    def test_generate(self):
        generator = self.make()
        generator.load()
        batch = treadle.Batch.of({"prompt_ids": PROMPTS, "seed": [1, 2, 3], "uid": ["a", "b", "c"]})
        sampling = treadle.Sampling(n=2, max_tokens=5, ignore_eos=True, logprobs_of="drawn", top_k=4, never=[0, 1])
        answers = generator.generate(batch, sampling)
        self.assertEqual(list(answers), ["ids", "rollout_log_probs", "finish", "version", "kept_counts", "kept"])
        self.assertEqual(len(answers), 6)
        self.assertEqual(answers["kept_counts"].tolist(), [[4] * 5] * 6)
        kept = numpy.array(answers["kept"].tolist()).reshape(6, 5, 4)
        ids = numpy.array(answers["ids"].tolist())
        self.assertTrue((kept == ids[:, :, None]).any(2).all() and (kept > 1).all())
        self.assertNotEqual(answers["ids"].tolist()[0], answers["ids"].tolist()[1])
        self.assertEqual(lists(generator.generate(batch[1:2], sampling))["ids"], answers["ids"].tolist()[2:4])
        self.assertEqual(len(generator.generate([], GREEDY)), 0)
        self.assertEqual(lists(generator.generate(PROMPTS)).keys(), lists(generator.generate([[1]])).keys())
        arrays = [numpy.array(prompt) for prompt in PROMPTS]
        self.assertEqual(lists(generator.generate(arrays, GREEDY)), lists(generator.generate(PROMPTS, GREEDY)))

    def test_score(self):
        """Of what was generated, with the same bits; in float32 arrays of numpy."""
        generator = self.make()
        generator.load()
        answers = generator.generate(PROMPTS, GREEDY)
        texts = [prompt + row for prompt, row in zip(PROMPTS, answers["ids"].tolist())]
        scores = generator.score(texts)
        self.assertEqual([len(score) for score in scores], [len(text) for text in texts])
        for score, prompt, row in zip(scores, PROMPTS, answers["rollout_log_probs"]):
            self.assertEqual(score.dtype, numpy.float32)
            self.assertTrue(numpy.isnan(score[0]))
            numpy.testing.assert_array_equal(score[len(prompt) :], row)
        self.assertGreater(generator.score(texts[:1], temperature=0.5)[0][-1], scores[0][-1])
        self.assertEqual(generator.score([]), [])

    def test_info(self):
        generator = self.make()
        generator.load()
        info = generator.info()
        fields = [name for name, *_ in _abi.treadle_generator_info._fields_ if name != "struct_size"]
        self.assertEqual(list(info._fields), fields)
        self.assertEqual((info.dtype, info.exact, info.threads, info.max_len), ("bfloat16", True, 1, 256))
        self.assertEqual((info.version, info.vocabulary, info.kv_blocks_used), (1, 512, 0))
        fields = [field.name for field in dataclasses.fields(treadle.GeneratorOptions)]
        self.assertEqual(sorted(fields), sorted(n for n, *_ in _abi.treadle_generator_options._fields_[1:]))

    def test_experts(self):
        with tempfile.TemporaryDirectory(prefix="treadle-test-") as folder:
            model = treadle.Model(ranks.make_model(folder, "--family", "qwen3_moe"))
            layout = treadle.Layout(model, "vllm", 1)
            generator = treadle.Generator(layout, threads=1, max_len=64, kv_bytes=2 << 20, experts=True)
            self.addCleanup(generator.close)
            generator.load()
            answers = generator.generate(PROMPTS, GREEDY)
            for prompt, ids, experts in zip(PROMPTS, answers["ids"].tolist(), answers["experts"].tolist()):
                self.assertEqual(len(experts) % (2 * (len(prompt) + len(ids) - 1)), 0)
        self.refused("no experts to record", self.make, experts=True)

    def test_refused(self):
        generator = self.make()
        generator.load()
        generate, score = generator.generate, generator.score
        self.refused("prompts: .*512", generate, [[1], [512]], GREEDY)
        self.refused("row 1|line 2|prompt", generate, [[1], []], GREEDY)
        self.refused("'prompt_ids': row 0: no int32", generate, [[2**31]], GREEDY)
        self.refused("prompt_ids", generate, treadle.Batch.of({"ids": [[1]]}), GREEDY)
        self.refused("seed.*int64", generate, treadle.Batch.of({"prompt_ids": [[1]], "seed": [0.5]}), GREEDY)
        self.refused("top_p", generate, PROMPTS, treadle.Sampling(top_p=2))
        self.refused("temperature", generate, PROMPTS, treadle.Sampling(temperature=float("nan")))
        self.refused("temperature is 'hot'", generate, PROMPTS, treadle.Sampling(temperature="hot"))
        self.refused("logprobs_of is 'all'", generate, PROMPTS, treadle.Sampling(logprobs_of="all"))
        self.refused("never: ids must be whole", generate, PROMPTS, treadle.Sampling(never=[1 << 40]))
        self.refused(r"never\[0\] is 600", generate, PROMPTS, treadle.Sampling(never=[600]))
        self.refused("top_k is 1180591620717411303424", generate, PROMPTS, treadle.Sampling(top_k=1 << 70))
        self.refused("sampling is a dict", generate, PROMPTS, {"n": 1})
        self.refused("text 1: ids must be whole", score, [[1], ["x"]])
        self.refused("512", score, [[512]])
        self.refused("temperature", score, PROMPTS, temperature=-1)
        self.refused("threads -1: 1 to 256", treadle.Generator, self.layout, threads=-1)
        self.refused("kernels", treadle.Generator, self.layout, kernels="no such kernels")
        with treadle.Generator(self.layout, kernels="plain", threads=1) as plain:
            self.assertEqual(plain.info().kernels, "plain")
        two = treadle.Layout(self.layout.model, "vllm:tp=2", 2)
        self.refused("2 ranks", treadle.Generator, two)
        self.assertEqual(len(generate(PROMPTS, GREEDY)), 3)

    # ---- What ends a call ----

    def test_observer(self):
        generator = self.make()
        generator.load()
        told, long = [], treadle.Sampling(temperature=0, max_tokens=200, ignore_eos=True)
        generator.generate(PROMPTS, GREEDY, progress=lambda *given: told.append(given))
        self.assertTrue(told and all(isinstance(what, str) and done <= total for what, done, total in told))
        self.refused("", generator.generate, PROMPTS, long, stop=lambda: True, kind=treadle.Cancelled)

        def fail(*_):
            raise Mine("no more")

        for name in ("progress", "stop"):
            with self.assertRaisesRegex(Mine, "^no more$") as caught:
                generator.generate(PROMPTS, long, **{name: fail})
            self.assertIsNone(caught.exception.__cause__)
        self.assertEqual(lists(generator.generate(PROMPTS, GREEDY))["finish"], ["length"] * 3)
        self.assertEqual(generator.info().kv_blocks_used, 0)

    def test_interrupt(self):
        generator = self.make()
        generator.load()
        long = treadle.Sampling(temperature=0, n=8, max_tokens=240, ignore_eos=True)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            for _ in range(20):
                generator.generate(PROMPTS, long)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(len(generator.generate(PROMPTS, GREEDY)), 3)

    def test_one_call_at_a_time(self):
        generator, said = self.make(), []
        generator.load()

        def progress(*_):
            for call in (lambda: generator.score(PROMPTS), generator.close, generator.unbind):
                try:
                    call()
                except treadle.State as error:
                    said.append(str(error))

        generator.generate(PROMPTS, GREEDY, progress=progress)
        self.assertEqual(
            said[:3],
            [
                "score: another call of this generator runs: wait for it first",
                "close: a call of this generator runs: wait for it first",
                "unbind: another call of this generator runs: wait for it first",
            ],
        )

    def test_closed(self):
        with self.make() as generator:
            generator.load()
        generator.close()
        for call in (
            lambda: generator.generate(PROMPTS),
            lambda: generator.score(PROMPTS),
            generator.load,
            generator.unbind,
            generator.info,
            lambda: generator.bind(b""),
        ):
            self.refused("the generator is closed", call, kind=treadle.State)
        self.assertIn("closed", repr(generator))
        with self.assertRaisesRegex(TypeError, "^a treadle.Generator cannot be pickled: make one of the same layout"):
            pickle.dumps(generator)

    def test_ends_by_itself(self):
        generator = self.make()
        generator.load()
        told = weakref.ref(generator._object)
        self._cleanups.clear()
        del generator
        self.assertIsNone(told())

    # ---- Ranks ----

    def test_ranks(self):
        generator = self.make()
        generator.load()
        wanted, scores = lists(generator.generate(PROMPTS[:2], GREEDY)), generator.score(PROMPTS[:2])
        answers = ranks.run(4, "test_generator", "on_ranks", self.model)
        for rank, (ids, log_probs, scored, said, stopped, refused, again) in enumerate(answers):
            self.assertEqual(ids, wanted["ids"] if rank < 2 else [])
            self.assertEqual(log_probs, wanted["rollout_log_probs"] if rank < 2 else [])
            self.assertEqual(scored, [score[1:].tolist() for score in scores])
            self.assertEqual(said, f"rank {rank}: the group is used by a test, which runs: wait for it first")
            self.assertRegex(stopped, "^Cancelled: gen" if rank == 1 else "^Peer: .*generation was cancelled")
            self.assertRegex(refused, "^Refused: column" if rank == 3 else "^Refused: rank 3: column")
            self.assertTrue(again)

    def test_brings_no_numpy(self):
        code = "import sys, treadle\ntreadle.Generator, treadle.Trainer, treadle.Sampling(), treadle.Loss()\n"
        code += "print([name for name in ('numpy', 'torch') if name in sys.modules])"
        said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        self.assertEqual(json.loads(said), [])


if __name__ == "__main__":
    unittest.main()
