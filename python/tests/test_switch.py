"""The switch: bytes against cuts of the whole tensors by numpy, addresses, modes, callbacks, the end of things."""

import gc
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import ranks

import treadle


def read_safetensors(folder):
    """Name to array of uint16, the bits of bf16, read without treadle."""
    import numpy

    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert all(about["dtype"] == "BF16" for name, about in header.items() if name != "__metadata__")
    return {
        name: numpy.frombuffer(
            data,
            "uint16",
            offset=8 + length + about["data_offsets"][0],
            count=(about["data_offsets"][1] - about["data_offsets"][0]) // 2,
        ).reshape(about["shape"])
        for name, about in header.items()
        if name != "__metadata__"
    }


def vllm_cut(whole, layers, tp, rank, kv_heads=2):
    """What vLLM holds of a llama model: its fused tensors, cut by hand. Ranks share heads of keys and values where they
    are more."""
    import numpy

    rows = lambda name: numpy.split(whole[name], tp, 0)[rank]  # noqa: E731
    columns = lambda name: numpy.split(whole[name], tp, 1)[rank]  # noqa: E731
    heads = lambda name: numpy.split(whole[name], min(tp, kv_heads), 0)[rank * min(tp, kv_heads) // tp]  # noqa: E731
    cut = {
        "model.norm.weight": whole["model.norm.weight"],
        "model.embed_tokens.weight": rows("model.embed_tokens.weight"),
    }
    if "lm_head.weight" in whole:
        cut["lm_head.weight"] = rows("lm_head.weight")
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            cut[f"{at}{norm}.weight"] = whole[f"{at}{norm}.weight"]
        cut[at + "self_attn.qkv_proj.weight"] = numpy.concatenate(
            [(rows if p == "q" else heads)(f"{at}self_attn.{p}_proj.weight") for p in "qkv"]
        )
        cut[at + "mlp.gate_up_proj.weight"] = numpy.concatenate(
            [rows(f"{at}mlp.{p}_proj.weight") for p in ("gate", "up")]
        )
        cut[at + "self_attn.o_proj.weight"] = columns(at + "self_attn.o_proj.weight")
        cut[at + "mlp.down_proj.weight"] = columns(at + "mlp.down_proj.weight")
    return cut


def compare(found, wanted):
    import numpy

    assert set(found) == set(wanted), set(found) ^ set(wanted)
    for name, array in wanted.items():
        assert found[name].shape == array.shape, (name, found[name].shape, array.shape)
        assert numpy.array_equal(found[name], array), name


def move(rank, size, name, folder, train, options):
    import numpy

    model = treadle.Model(folder)
    group = treadle.Group.join(name, rank, size, timeout=60)
    whole = read_safetensors(folder)
    source, target = treadle.Layout(model, train, size), treadle.Layout(model, f"vllm:tp={size}", size)
    with treadle.Switch(group, source, target, page=4096, cap=1 << 20, **options) as sw:
        sw.load()
        digest = sw.digest()
        addresses = {n: m.address for n, m in sw.infer.items()}
        for step in range(3):
            assert sw.to_infer() == step + 1 == sw.version and sw.mode == "infer"
            assert sw.stats["copied_bytes"] + sw.stats["filled_bytes"] > 0 and sw.stats["seconds"] > 0
            compare(sw.infer.numpy(), vllm_cut(whole, 4, size, rank))
            assert sw.digest() == digest
            assert {n: m.address for n, m in sw.infer.items()} == addresses
            if options.get("offload", ()) != []:
                sw.to_forward()
            sw.to_train()
            for array in sw.train.numpy().values():  # a step of training: all bits change alike on all ranks
                array ^= 1
            whole = {n: a ^ numpy.uint16(1) for n, a in whole.items()}
            digest = sw.digest()
    return "moved"


def updates(rank, size, name, folder, own):
    """A trainer on ranks of its own, and an engine: versions come while it trains."""
    import numpy

    model = treadle.Model(folder)
    group = treadle.Group.join(name, rank, size, timeout=60)
    train, infer = (
        treadle.Layout(model, "megatron:tp=2,on=0-1", size),
        treadle.Layout(model, 'vllm:tp=2,on="2-3"', size),
    )
    tensors = {s.name: numpy.zeros(s.shape, "uint16") for s in (train.storages(rank) if own else ())}
    engine = {s.name: numpy.zeros(s.shape, "uint16") for s in (infer.storages(rank) if own else ())}
    whole = read_safetensors(folder)
    assert len(train.storages(3)) == len(infer.storages(0)) == 0 and len(infer.storages(3)) > 0
    with treadle.Switch(group, train, infer, train_tensors=tensors, infer_tensors=engine, page=4096, cap=2 << 20) as sw:
        sw.load()
        assert sw.to_infer() == 1
        for step in range(3):
            for array in sw.train.numpy().values():  # in mode INFER
                array ^= 1
            whole = {n: a ^ numpy.uint16(1) for n, a in whole.items()}
            version = sw.update() if step % 2 else sw.update(wait=False).result(60)
            assert version == step + 2 and sw.valid
            if rank >= 2:
                compare(sw.infer.numpy(), vllm_cut(whole, 4, 2, rank - 2))
        sw.to_train()
        try:
            sw.update()
        except treadle.State as error:
            return str(error)


class TestSwitch(ranks.Folder, unittest.TestCase):
    def test_bytes(self):
        for train, options in (
            ("megatron:tp=2,pp=2", {}),
            ("fsdp2:dp=4", {"keep": "host", "host": True}),
            ("hf", {"alias": True}),
            ("megatron:tp=4", {"offload": []}),
        ):
            with self.subTest(train=train, options=options):
                self.assertEqual(ranks.run(4, "test_switch", "move", self.model, train, options), ["moved"] * 4)

    def test_update(self):
        for own in (False, True):
            with self.subTest(own=own):
                for answer in ranks.run(4, "test_switch", "updates", self.model, own):
                    self.assertIn("only mode infer has a next version", answer)

    def alone(self, **options):
        model = treadle.Model(self.model)
        group = treadle.Group.alone()
        # Most tests look at other things than values.
        return treadle.Switch(
            group,
            treadle.Layout(model, "megatron", 1),
            treadle.Layout(model, "vllm", 1),
            **{"allow_unfilled": True} | options,
        )

    def test_memory(self):
        import numpy

        with self.alone(grads_bytes=1000, optimizer_bytes=2000, kv_block_bytes=4096) as sw:
            sw.load()
            norm = sw.train["decoder.final_layernorm.weight"]
            self.assertEqual((norm.shape, norm.dtype, norm.nbytes), ((256,), "bfloat16", 512))
            norm.numpy()[:] = 7
            self.assertEqual((sw.grads.nbytes, sw.optimizer.nbytes), (1000, 2000))
            sw.optimizer["bytes"].numpy()[:] = 3
            self.assertEqual(sw.grads["bytes"].shape, (1000,))
            sw.to_infer()
            found = sw.infer["model.norm.weight"]
            self.assertTrue((found.numpy() == 7).all())
            self.assertFalse(found.numpy().flags.writeable)
            with self.assertRaises(ValueError):
                found.numpy()[0] = 1
            self.assertGreater(sw.kv.nbytes, 0)
            self.assertEqual(sw.kv.nbytes % 4096, 0)
            for version in (None, (1, 0)):  # bytes: numpy has no bf16
                whole = sw.optimizer["bytes"]
                capsule = whole.__dlpack__(max_version=version)
                del capsule  # that nobody takes
                array = numpy.from_dlpack(whole)
                self.assertEqual(array.ctypes.data, whole.address)
            with self.assertRaisesRegex(BufferError, "read-only"):
                found.__dlpack__()
            for options, words in (({"copy": True}, "not copied"), ({"dl_device": (2, 0)}, r"not copied to \(2, 0\)")):
                with self.assertRaisesRegex(BufferError, words):
                    whole.__dlpack__(**options)
            sw.to_train()
            self.assertTrue((array == 3).all())
        del sw
        gc.collect()
        self.assertTrue((array == 3).all())  # its memory is there as long as it is

    def test_capsules(self):
        """A capsule that nobody takes, also since it was refused, does not keep the memory."""
        import numpy

        from treadle import _dlpack

        with self.alone() as sw:
            sw.load()
            before = len(_dlpack._living)
            norm = sw.train["decoder.final_layernorm.weight"]
            for _ in range(3):
                with self.assertRaisesRegex((RuntimeError, BufferError), "dtype"):  # numpy has no bf16
                    numpy.from_dlpack(norm)
            kept = norm.__dlpack__()
            del norm
            _dlpack.reap()
            self.assertEqual(len(_dlpack._living), before + 1)
            del kept
        self.assertEqual(len(_dlpack._living), before)

    def test_checker(self):
        with self.alone() as sw:
            sw.load()
            checker = treadle.Checker(sw.train.numpy())
            with self.assertRaisesRegex(treadle.State, "without a snapshot"):
                checker.compare()
            checker.snapshot()
            self.assertEqual(checker.compare(), [])
            sums = checker.checksum()
            checker.reset(5)
            self.assertEqual(set(checker.compare()), set(sums))
            once = checker.checksum()
            checker.reset(5)
            self.assertEqual(checker.checksum(), once)
            sw.load()
            self.assertEqual(checker.compare(), [])
            sw.train["decoder.final_layernorm.weight"].numpy()[3] ^= 1
            self.assertEqual(checker.compare(), ["decoder.final_layernorm.weight"])
            self.assertEqual(
                treadle.Checker(dict(sw.train)).checksum()["decoder.final_layernorm.weight"],
                checker.checksum()["decoder.final_layernorm.weight"],
            )
            with self.assertRaisesRegex(treadle.Refused, "read-only"):
                treadle.Checker(sw.infer.numpy()).reset(1)

    def test_engine(self):
        said = []
        with self.alone(
            bind=lambda window: said.append(("bind", len(window))), unbind=lambda: said.append("unbind")
        ) as sw:
            sw.load()
            sw.to_infer()
            sw.to_train()
            self.assertEqual(said, [("bind", len(sw.infer)), "unbind"])

        def refuse(window):
            raise LookupError("no such engine")

        with self.alone(bind=refuse, keep="host") as sw:
            with self.assertRaisesRegex(
                treadle.System, "bind of version 1 failed.*LookupError: no such engine"
            ) as caught:
                sw.to_infer()
            self.assertIsInstance(caught.exception.__cause__, LookupError)
            self.assertEqual(sw.mode, "train")

        class Mute(Exception):
            def __str__(self):
                raise RuntimeError

        # Errors whose words cannot be had, or cannot be UTF-8.
        for error, words in ((Mute(), "Mute"), (ValueError("\ud8ff"), r"ValueError: \?")):

            def raise_it(window, error=error):
                raise error

            with self.alone(bind=raise_it, keep="host") as sw:
                with self.assertRaisesRegex(treadle.System, words):
                    sw.to_infer()
                self.assertEqual(sw.mode, "train")

        def close(window):
            closing.close()

        with self.alone(bind=close, keep="host") as closing:
            for call in (closing.to_infer, lambda: closing.to_infer(wait=False).result(30)):
                with self.assertRaisesRegex(treadle.State, "rank 0: it is called in a callback"):
                    call()

    def test_engine_beside(self):
        """What an engine raises in an arrow beside the caller is the arrow's, and nobody else's."""
        raised = threading.Event()

        def refuse(window):
            try:
                raise LookupError("no such engine")
            finally:
                raised.set()

        with self.alone(bind=refuse, keep="host") as sw:
            future = sw.to_infer(wait=False)
            self.assertTrue(raised.wait(30))
            for _ in range(100):
                treadle.Group.alone().barrier()
            with self.assertRaisesRegex(treadle.System, "LookupError: no such engine") as caught:
                future.result(30)
            self.assertIsInstance(caught.exception.__cause__, LookupError)

    def test_dropped(self):
        """A switch that nobody has any more, and its own tensors, are there until its arrow has ended."""
        import numpy

        entered, go_on, seen = threading.Event(), threading.Event(), []

        def hold_up(window):
            entered.set()
            go_on.wait(30)
            seen.append(int(window["model.norm.weight"].numpy()[0]))

        norm = numpy.full(256, 5, "uint16")
        sw = self.alone(bind=hold_up, train_tensors={"decoder.final_layernorm.weight": norm})
        future = sw.to_infer(wait=False)
        self.assertTrue(entered.wait(30))
        with self.assertRaisesRegex(treadle.State, "load: rank 0: an arrow of this switch runs"):
            sw.load()
        del sw, norm
        gc.collect()
        go_on.set()
        self.assertEqual((future.result(30), seen), (1, [5]))

    def test_outside(self):
        """Memory of params, gradients and optimizer state where their bytes are not on the device; that of the infer
        window at any time."""
        import numpy

        with self.alone(
            host=True, grads_bytes=1000, optimizer_bytes=2000, offload=["params", "grads", "optimizer"]
        ) as sw:
            sw.load()
            norm = sw.train["decoder.final_layernorm.weight"]
            taken = norm.numpy()
            taken[:] = 9
            early = sw.infer["model.norm.weight"].numpy()
            sw.to_infer()
            self.assertTrue((early == 9).all())
            for call, words in (
                (norm.numpy, "params are not on the device"),
                (lambda: numpy.from_dlpack(sw.grads["bytes"]), "gradients are"),
                (sw.optimizer.numpy, "optimizer state are"),
                (lambda: treadle.Checker(dict(sw.train)).checksum(), "params are"),
            ):
                with self.assertRaisesRegex(treadle.State, "rank 0: in mode infer " + words):
                    call()
            sw.to_forward()
            self.assertTrue((norm.numpy() == 9).all())
            with self.assertRaisesRegex(treadle.State, "in mode forward gradients"):
                sw.grads.numpy()
            sw.to_host()
            for call, words in (
                (sw.train.numpy, "in mode host params are not on the device"),
                (sw.digest, "digest: in mode host"),
            ):
                with self.assertRaisesRegex(treadle.State, words):
                    call()
            sw.to_train()
            self.assertTrue((norm.numpy() == 9).all())
            self.assertEqual(sw.optimizer["bytes"].numpy().shape, (2000,))
            windows = sw.train, sw.infer
        for window in windows:
            with self.assertRaisesRegex(treadle.State, "the switch is closed"):
                window.numpy()
        with self.assertRaisesRegex(treadle.State, "handle: the switch is closed"):
            windows[1].handle()
        with self.alone(offload=[]) as sw:  # params stay
            sw.load()
            sw.to_infer()
            sw.train.numpy()

    def test_modes(self):
        with self.alone(host=True) as sw:
            sw.load()
            self.assertEqual(sw.to_host(), 0)
            self.assertEqual(sw.mode, "host")
            with self.assertRaisesRegex(treadle.State, "load: in mode host"):
                sw.load()
            future = sw.to_infer(wait=False)
            self.assertEqual(future.result(30), 1)
            self.assertFalse(sw.cancel())
            with self.assertRaisesRegex(treadle.State, "host"):
                sw.to_host()
            self.assertIn("mode infer, version 1", repr(sw))
        for call in (sw.to_train, sw.digest, sw.load, sw.cancel, lambda: sw.infer, lambda: sw.mode):
            with self.assertRaisesRegex(treadle.State, "closed"):
                call()
        sw.close()

    def test_save(self):
        model = treadle.Model(self.model)
        layouts = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
        with tempfile.TemporaryDirectory() as folder, treadle.Switch(treadle.Group.alone(), *layouts) as sw:
            one, two = (os.path.join(folder, name) for name in ("one", "two"))
            with self.assertRaisesRegex(treadle.Refused, "filled"):
                sw.save(one)
            sw.load()
            sw.save(one)
            compare(read_safetensors(one), read_safetensors(self.model))
            self.assertEqual(treadle.Model(one).elems, model.elems)
            sw.save(two, dtype="float32", weights_only=True)
            self.assertFalse(os.path.exists(os.path.join(two, "config.json")))
            self.assertGreater(
                os.path.getsize(os.path.join(two, "model.safetensors")),
                1.9 * os.path.getsize(os.path.join(one, "model.safetensors")),
            )
            for words, path, options in (
                ("one", one, {}),
                ("dtype is 'bf16'", "x", {"dtype": "bf16"}),
                ("zero character", "x\0", {}),
                ("nothing", "x", {"companions": os.path.join(folder, "nothing")}),
            ):
                with self.assertRaisesRegex(treadle.Error, words):
                    sw.save(os.path.join(folder, path), **options)
            sw.to_infer()
            with self.assertRaisesRegex(treadle.State, "save: rank 0: in mode infer; switch to train first"):
                sw.save(os.path.join(folder, "three"))
            self.assertEqual(sorted(os.listdir(folder)), ["one", "two"])
        with self.assertRaisesRegex(treadle.State, "closed"):
            sw.save("four")

    def test_second_switch(self):
        model = treadle.Model(self.model)
        group = treadle.Group.alone()
        layouts = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
        entered, go_on = threading.Event(), threading.Event()

        def hold_up(_):
            entered.set()
            go_on.wait(30)

        with treadle.Switch(group, *layouts, bind=hold_up) as first, treadle.Switch(group, *layouts) as second:
            first.load()
            future = first.to_infer(wait=False)
            self.assertTrue(entered.wait(30))
            for call in (second.to_infer, second.digest, group.barrier, lambda: treadle.Switch(group, *layouts)):
                with self.assertRaisesRegex(
                    treadle.State, "rank 0: the group is used by a switch from megatron to vllm"
                ):
                    call()
            for call in (first.to_train, first.digest):
                with self.assertRaises(treadle.State):
                    call()
            go_on.set()
            self.assertEqual(future.result(30), 1)
            second.load()
            self.assertEqual(second.to_infer(), 1)

    def test_exit(self):
        """A process may end with all that it has, in whatever state."""
        code = """
import sys, treadle
model = treadle.Model(sys.argv[1])
group = treadle.Group.alone()
layouts = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
sw = treadle.Switch(group, *layouts, bind=lambda window: None)
sw.load()
handle = sw.infer.handle()
tensors = sw.infer.numpy()
sw.itself = sw, tensors
sys.modules["kept"] = sw
if sys.argv[2] == "started": sw.to_infer(wait=False)
if sys.argv[2] == "attached": other = treadle.attach(handle); sw.to_infer(); other.hold()
if sys.argv[2] == "capsule": sys.modules["kept"] = sw.infer["model.norm.weight"].__dlpack__(max_version=(1, 0))
if sys.argv[2] == "raised": raise SystemExit(7)
"""
        for how, status in (("idle", 0), ("started", 0), ("attached", 0), ("capsule", 0), ("raised", 7)):
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", "-c", code, self.model, how],
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual((done.returncode, done.stderr), (status, ""), how)

    def test_refused(self):
        for options, words in (
            ({"keep": "both"}, "keep is 'both'"),
            ({"offload": ["kv"]}, "offload has 'kv'"),
            ({"device": "tpu"}, "device is 'tpu'"),
            ({"page": 100}, "100"),
            ({"cap": 1, "page": 4096}, "cap"),
            ({"timeout": -1}, "-1"),
            ({"cap": -1}, "cap_bytes is -1"),
            ({"grads_bytes": 1 << 64}, "grads_bytes is 18446744073709551616"),
            ({"stream": 7}, "which has no streams"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(treadle.Refused, words):
                self.alone(**options)

    def test_fork(self):
        sw = self.alone()
        sw.load()
        weights = treadle.attach(sw.infer.handle())
        calls = (
            sw.to_infer,
            sw.train["decoder.final_layernorm.weight"].numpy,
            sw.infer.handle,
            weights.numpy,
            lambda: weights.wait(0),
        )
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for call in calls:
                    try:
                        call()
                        status = 3
                        break
                    except treadle.State as error:
                        status = 0 if "before this process was forked" in str(error) else 2
                weights.close()
                sw.close()
            finally:
                sw = weights = calls = None
                gc.collect()
                os._exit(status)
        self.assertTrue(weights.valid is False and weights.version == 0)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(sw.to_infer(), 1)  # the child has ended nothing


if __name__ == "__main__":
    unittest.main()
