"""Engines in other processes: handles, versions, holds."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import ranks

import treadle

READER = """
import sys, time, treadle
w = treadle.attach(bytes.fromhex(sys.argv[1]))
version = w.wait(1)
print(version, w.hold(), w["model.norm.weight"].numpy()[0], flush=True)
sys.stdin.readline()
w.release()
print(w.wait(2), w["model.norm.weight"].numpy()[0], flush=True)
sys.stdin.readline()
"""


class TestAttach(ranks.Folder, unittest.TestCase):
    def setUp(self):
        model = treadle.Model(self.model)
        self.sw = treadle.Switch(
            treadle.Group.alone(), treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1), timeout=2
        )
        self.sw.load()
        self.norm = self.sw.train["decoder.final_layernorm.weight"].numpy()

    def tearDown(self):
        self.sw.close()

    def test_reader(self):
        handle = self.sw.infer.handle()
        self.assertIsInstance(handle, bytes)
        self.assertLess(len(handle), 4096)
        self.norm[:] = 11
        with subprocess.Popen(
            [sys.executable, "-c", READER, handle.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reader:
            try:
                self.assertEqual(self.sw.to_infer(), 1)
                self.assertEqual(reader.stdout.readline(), "1 1 11\n")
                begin = time.monotonic()
                with self.assertRaisesRegex(treadle.Timeout, f"process {reader.pid}"):
                    self.sw.to_train()
                self.assertGreater(time.monotonic() - begin, 1.5)
                self.assertEqual((self.sw.mode, self.sw.version), ("infer", 1))
                reader.stdin.write("\n")
                reader.stdin.flush()
                self.sw.to_train()
                self.norm[:] = 12
                self.assertEqual(self.sw.to_infer(), 2)
                self.assertEqual(reader.stdout.readline(), "2 12\n")
            finally:
                reader.kill()

    def test_dead_holder(self):
        self.sw.to_infer()
        with subprocess.Popen(
            [sys.executable, "-c", READER, self.sw.infer.handle().hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as reader:
            reader.stdout.readline()
            os.kill(reader.pid, signal.SIGKILL)
        begin = time.monotonic()
        self.sw.to_train()
        self.assertLess(time.monotonic() - begin, 1)

    def test_here(self):
        with treadle.attach(self.sw.infer.handle()) as weights:
            self.assertEqual((weights.version, weights.valid), (0, False))
            with self.assertRaises(treadle.State):
                weights.hold()
            with self.assertRaises(treadle.Timeout):
                weights.wait(1, timeout=0.1)
            with self.assertRaisesRegex(treadle.State, "nothing is held"):
                weights.release()
            self.sw.to_infer()
            self.assertEqual((weights.wait(1), weights.valid, weights.nbytes), (1, True, self.sw.infer.nbytes))
            self.assertEqual(list(weights), list(self.sw.infer))
            for name, array in weights.numpy().items():
                self.assertFalse(array.flags.writeable)
                self.assertTrue((array == self.sw.infer[name].numpy()).all())
            self.sw.close()  # though self.norm is still there
            self.assertFalse(weights.valid)
            with self.assertRaises(treadle.Peer):
                weights.wait(2)
        with self.assertRaisesRegex(treadle.State, "closed"):
            weights.torch()
        self.assertIn("closed", repr(weights))

    def test_bad_handles(self):
        handle = self.sw.infer.handle()
        for bad in (
            b"",
            handle[:-1],
            handle + b"x",
            bytes([handle[0] ^ 1]) + handle[1:],
            handle[:40] + bytes([handle[40] ^ 1]) + handle[41:],
            b"x" * 5000,
        ):
            with self.assertRaises(treadle.Refused):
                treadle.attach(bad)
        for window in (self.sw.train, self.sw.kv):
            with self.assertRaisesRegex(treadle.Refused, "only"):
                window.handle()
        self.sw.close()
        with self.assertRaises(treadle.Peer):
            treadle.attach(handle, timeout=1)
        for none in (5, "x", None):
            with self.assertRaises(TypeError):
                treadle.attach(none)

    def test_handles_of_others(self):
        """Of a process that has ended, and of another user's."""
        code = """
import sys, treadle
model = treadle.Model(sys.argv[1])
sw = treadle.Switch(treadle.Group.alone(), treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1))
print(sw.infer.handle().hex())"""
        said = subprocess.run(
            [sys.executable, "-c", code, self.model], check=True, capture_output=True, text=True
        ).stdout
        with self.assertRaisesRegex(treadle.Peer, r"process \d+.*(has ended|has destroyed|is gone)"):
            treadle.attach(bytes.fromhex(said), timeout=1)

    @unittest.skipUnless(os.geteuid() == 0, "only root can become another user")
    def test_other_user(self):
        handle = self.sw.infer.handle()
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            words = b"attached"
            try:
                os.setuid(65534)
                treadle.attach(handle, timeout=1)
            except BaseException as error:
                words = f"{type(error).__name__}: {error}".encode()
            finally:
                os.write(writes, words)
                os._exit(0)
        os.close(writes)
        with open(reads, encoding="utf-8") as said:
            self.assertRegex(said.read(), "^Refused: .* is of user 0, this process is one of user 65534")
        os.waitpid(child, 0)

    def test_closed_beside(self):
        """close() while another thread waits: what it waits in is there until it has returned."""
        weights, answers = treadle.attach(self.sw.infer.handle()), []

        def wait():
            try:
                weights.wait(1, timeout=1)
            except treadle.Error as error:
                answers.append(type(error))

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.2)
        weights.close()
        thread.join(30)
        self.assertEqual(answers, [treadle.Timeout])

    def test_checker(self):
        """A reader's pages cannot be written; who asks for it is refused, and not ended."""
        self.sw.to_infer()
        with treadle.attach(self.sw.infer.handle()) as weights:
            self.assertEqual(treadle.Checker(weights).checksum(), treadle.Checker(self.sw.infer).checksum())
            with self.assertRaisesRegex(treadle.Refused, "read-only"):
                treadle.Checker(weights).reset(1)
            with self.assertRaisesRegex(treadle.Refused, "only windows of a switch"):
                weights._tensors().handle()


if __name__ == "__main__":
    unittest.main()
