"""Windows on devices: by the stand-in of NVIDIA's driver (tests/cuda/fake_cuda.h), where a processor that touches
device memory faults. torch's streams are those of a stand-in, too, in test_streams: torch itself does not run on the
driver's."""

import contextlib
import ctypes
import importlib.util
import os
import subprocess
import sys
import types
import unittest
import unittest.mock

import ranks
import test_switch

import treadle
from treadle import _device, _dlpack, _library

NORM, FUSED = "decoder.final_layernorm.weight", "decoder.layers.0.self_attention.linear_qkv.weight"
FLAT = "model.norm.weight"
HAS_TORCH = importlib.util.find_spec("torch") is not None


def capsule_of(capsule, versioned):
    """What a consumer finds in a capsule."""
    name, kind = (b"dltensor_versioned", _dlpack._Versioned) if versioned else (b"dltensor", _dlpack._Managed)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.argtypes, get.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return kind.from_address(get(capsule, name))


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing raised: {words}")


def alone(folder, device="cuda", train="megatron", **options):
    model = treadle.Model(folder)
    return treadle.Switch(
        treadle.Group.alone(),
        treadle.Layout(model, train, 1),
        treadle.Layout(model, "vllm", 1),
        device=device,
        **options,
    )


def show(rank, size, name, folder, device):
    """What memory of a device shows, and what it refuses."""
    import numpy

    with alone(folder, device, grads_bytes=1000) as sw:
        assert sw.device == sw.train.device == sw.train[NORM].device == device, sw.device
        number = int(device[-1])
        refused(treadle.Refused, "were never given values", sw.digest)  # nobody has filled it
        sw.load()
        for window, writable in ((sw.train, True), (sw.infer, False)):
            for memory in window.values():
                assert memory.__dlpack_device__() == (2, number)
                made = capsule_of(memory.__dlpack__(stream=1, max_version=(1, 0), dl_device=(2, number)), True)
                tensor = made.tensor
                assert (made.major, made.flags) == (1, 0 if writable else 1)
                assert (tensor.data, tensor.device_type, tensor.device_id, tensor.code, tensor.bits) == (
                    memory.address,
                    2,
                    number,
                    4,
                    16,
                )
                assert tuple(tensor.shape[: tensor.ndim]) == memory.shape and tensor.byte_offset == 0
        tensor = capsule_of(sw.train[NORM].__dlpack__(), False).tensor
        assert (tensor.data, tensor.device_type, tensor.device_id) == (sw.train[NORM].address, 2, number)
        refused(BufferError, "read-only", sw.infer[FLAT].__dlpack__)
        refused(BufferError, "not copied to (1, 0)", lambda: sw.train[NORM].__dlpack__(dl_device=(1, 0)))
        for stream in (None, 1, 2, -1, 1 << 40):
            sw.train[NORM].__dlpack__(stream=stream)
        refused(BufferError, "stream is 0", lambda: sw.train[NORM].__dlpack__(stream=0))
        refused(BufferError, "stream is -2", lambda: sw.train[NORM].__dlpack__(stream=-2))
        refused(TypeError, "stream is a str", lambda: sw.train[NORM].__dlpack__(stream="1"))
        refused(AttributeError, "no name for bfloat16", lambda: sw.train[NORM].__cuda_array_interface__)
        assert not hasattr(sw.train[NORM], "__cuda_array_interface__")
        grads = sw.grads["bytes"]
        assert grads.__cuda_array_interface__ == {
            "version": 3,
            "shape": (1000,),
            "typestr": "|u1",
            "data": (grads.address, False),
            "strides": None,
            "stream": 1,
        }
        refused(treadle.Refused, f"on device '{device}'", sw.train[NORM].numpy)
        refused(treadle.Refused, f"on device '{device}'", sw.train.numpy)
        refused((BufferError, RuntimeError, ValueError), "", lambda: numpy.from_dlpack(sw.train[NORM]))

        whole = test_switch.read_safetensors(folder)
        assert numpy.array_equal(sw.train[NORM].read(), whole[FLAT])
        assert sw.train[NORM].read_bytes() == whole[FLAT].tobytes()
        refused(treadle.State, "closed", sw.infer[FLAT].read)
        digest = sw.digest()
        sw.to_infer()
        test_switch.compare(sw.infer.read(), test_switch.vllm_cut(whole, 4, 1, 0))
        assert sw.digest() == digest
        refused(treadle.Refused, "read-only", lambda: sw.infer[FLAT].write(whole[FLAT]))
        refused(treadle.State, "not on the device", sw.train[NORM].__dlpack__)
        sw.to_train()
        refused(treadle.Refused, "255", lambda: sw.train[NORM].write(whole[FLAT][:-1]))
        refused(treadle.Refused, "int8", lambda: sw.train[NORM].write(whole[FLAT].astype("int8")))
        refused(treadle.Refused, "5 bytes; they must be 512", lambda: sw.train[NORM].write(b"12345"))
        sw.train[NORM].write(whole[FLAT] ^ 1)
        assert numpy.array_equal(sw.train[NORM].read(), whole[FLAT] ^ 1)
        sw.train[NORM].write(numpy.repeat(whole[FLAT], 2)[::2])
        assert numpy.array_equal(sw.train[NORM].read(), whole[FLAT])

        checker = treadle.Checker(sw.train)
        checker.snapshot()
        checker.reset(1)
        assert set(checker.compare()) == set(sw.train)
        sw.load()
        assert checker.compare() == []
        refused(treadle.Refused, "read-only", lambda: treadle.Checker(sw.infer).reset(1) if sw.to_infer() else None)
        memory = sw.train[NORM]
    refused(treadle.State, "closed", memory.read)
    refused(AttributeError, "closed", lambda: grads.__cuda_array_interface__)
    assert not hasattr(grads, "__cuda_array_interface__")
    return digest


def move(rank, size, name, folder, device):
    """Ranks on devices: bytes, and which device each has."""
    import numpy

    model = treadle.Model(folder)
    group = treadle.Group.join(name, rank, size, timeout=60)
    whole = test_switch.read_safetensors(folder)
    with treadle.Switch(
        group, treadle.Layout(model, "megatron:tp=2", size), treadle.Layout(model, "vllm:tp=2", size), device=device
    ) as sw:
        sw.load()
        digest = sw.digest()
        for step in range(2):
            assert (sw.to_infer() if step else sw.to_infer(wait=False).result(60)) == step + 1
            test_switch.compare(sw.infer.read(), test_switch.vllm_cut(whole, 4, 2, rank))
            sw.to_train()
            for memory in sw.train.values():
                memory.write(memory.read() ^ 1)
            whole = {n: a ^ numpy.uint16(1) for n, a in whole.items()}
        return [sw.device, digest]


READER = """
import sys, treadle
w = treadle.attach(bytes.fromhex(sys.argv[1]))
version = w.wait(1)
memory = w["model.norm.weight"]
try:
    memory.numpy()
except treadle.Refused as error:
    words = str(error)
print(version, w.hold(), w.device, memory.__dlpack_device__(), memory.read()[0], words, flush=True)
sys.stdin.readline()
w.release()
print(w.wait(2), w.read()["model.norm.weight"][0], flush=True)
"""


def attach(rank, size, name, folder):
    import numpy

    with alone(folder) as sw:
        sw.load()
        norm = sw.train[NORM]
        norm.write(numpy.full(256, 11, "uint16"))
        sw.to_infer()
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, sw.infer.handle().hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with reader:
            said = [reader.stdout.readline()]
            reader.stdin.write("\n")
            reader.stdin.flush()
            sw.to_train()
            norm.write(numpy.full(256, 12, "uint16"))
            sw.to_infer()
            said.append(reader.stdout.readline())
        with treadle.attach(sw.infer.handle()) as here:
            made = capsule_of(here[FLAT].__dlpack__(max_version=(1, 0)), True)
            assert (made.flags, made.tensor.data, made.tensor.device_type) == (1, here[FLAT].address, 2)
            refused(treadle.Refused, "read-only", lambda: here[FLAT].write(bytes(512)))
            refused(treadle.Refused, "only the train window", lambda: here._tensors().adopt(None))
        return said


def own(rank, size, name, folder):
    """Memory of one switch as own tensors of another one, on both sides."""
    import numpy

    whole = test_switch.read_safetensors(folder)
    with (
        alone(folder) as trainer,
        alone(folder) as engine,
        alone(folder, "cuda:1") as other,
        alone(folder, "cpu") as host,
    ):
        trainer.load()
        with alone(folder, train_tensors=trainer.train) as sw:
            assert {n: m.address for n, m in sw.train.items()} == {n: m.address for n, m in trainer.train.items()}
            sw.load()
            assert numpy.array_equal(sw.train[NORM].read(), whole[FLAT])
            sw.to_infer()
            test_switch.compare(sw.infer.read(), test_switch.vllm_cut(whole, 4, 1, 0))
        for tensors, words in (
            (
                {NORM: other.train[NORM]},
                "rank 0: train tensor 'decoder.final_layernorm.weight' is on device cuda:1; it must be on cuda:0",
            ),
            ({NORM: host.train[NORM]}, "is on device cpu; it must be on cuda:0"),
            ({NORM: numpy.zeros(256, "uint16")}, "is on device cpu; it must be on cuda:0"),
        ):
            refused(treadle.Refused, words, lambda tensors=tensors: alone(folder, train_tensors=tensors))
        refused(
            treadle.Refused,
            "is on device cuda:0; it must be on cpu",
            lambda: alone(folder, "cpu", train_tensors={NORM: trainer.train[NORM]}),
        )
        refused(treadle.Refused, "there is no device 7: this process sees 2", lambda: alone(folder, "cuda:7"))
        return engine.device


@unittest.skipUnless(ranks.HAS_FAKE_CUDA, "the stand-in of NVIDIA's driver is not built: make fake-cuda")
class TestStandIn(ranks.Folder, unittest.TestCase):
    def run_ranks(self, size, function, *arguments, **variables):
        return ranks.run(
            size,
            "test_device",
            function,
            self.model,
            *arguments,
            environment=ranks.on_fake_cuda(self.folder, **variables),
        )

    def test_memory(self):
        with alone(self.model, "cpu") as sw:
            sw.load()
            digest = sw.digest()
        self.assertEqual(self.run_ranks(1, "show", "cuda:0"), [digest])
        self.assertEqual(self.run_ranks(1, "show", "cuda:1", FAKE_CUDA_DEVICES=2), [digest])

    def test_ranks(self):
        one = self.run_ranks(2, "move", "cuda")
        self.assertEqual([device for device, _ in one], ["cuda:0", "cuda:0"])
        two = self.run_ranks(2, "move", "auto", FAKE_CUDA_DEVICES=2)
        self.assertEqual([device for device, _ in two], ["cuda:0", "cuda:1"])
        host = ranks.run(2, "test_device", "move", self.model, "cpu")
        self.assertEqual({digest for _, digest in one + two + host}, {host[0][1]})

    def test_attach(self):
        (said,) = self.run_ranks(1, "attach")
        self.assertEqual(said[0][:21], "1 1 cuda:0 (2, 0) 11 ")
        self.assertIn("numpy: the memory is on device 'cuda:0'", said[0])
        self.assertEqual(said[1], "2 12\n")

    def test_own(self):
        self.assertEqual(self.run_ranks(1, "own", FAKE_CUDA_DEVICES=2), ["cuda:0"])


class TestHost(ranks.Folder, unittest.TestCase):
    """What is asked of memory on the host, too."""

    def test_memory(self):
        import numpy

        with alone(self.model, "cpu") as sw:
            memory = sw.train[NORM]
            self.assertEqual(
                (sw.device, memory.device, sw.train.device, memory.__dlpack_device__()), ("cpu", "cpu", "cpu", (1, 0))
            )
            self.assertFalse(hasattr(memory, "__cuda_array_interface__"))
            for one in sw.train.values():
                one.write(bytes(one.nbytes))  # which fills it
            memory.write(numpy.arange(256, dtype="uint16"))
            copy = memory.read()
            self.assertEqual(copy.tolist(), list(range(256)))
            copy[:] = 0
            self.assertEqual(memory.numpy()[3], 3)
            sw.to_infer()
            self.assertEqual(sw.infer[FLAT].read().tolist(), list(range(256)))
            self.assertEqual(sw.infer.read().keys(), sw.infer.numpy().keys())
            with treadle.attach(sw.infer.handle()) as weights:
                self.assertEqual((weights.device, weights[FLAT].read_bytes()), ("cpu", memory_bytes(sw.infer[FLAT])))
            with self.assertRaisesRegex(treadle.State, "closed"):
                memory.read()

    def test_names(self):
        group = treadle.Group.alone()
        for text in ("gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:١", "cuda1", "", "cpu:1", "meta"):
            with self.subTest(text=text), self.assertRaisesRegex(treadle.Refused, f"Switch: device is '{text}'"):
                _device.choose("Switch", text, None, group)
        self.assertEqual(_device.choose("Switch", "cuda:3", None, group)[:3], (1, 3, 0))
        self.assertEqual(_device.choose("Switch", "cuda:3", 5, group), (1, 3, 5, False))
        self.assertEqual(_device.choose("Switch", "cpu:0", None, group).text, "cpu")
        for stream in ("x", -1, True):
            with self.assertRaisesRegex(treadle.Refused, "must be a stream of torch or the handle"):
                _device.choose("Switch", "cuda:0", stream, group)
        with self.assertRaisesRegex(treadle.Refused, "plan: device is 'tpu'"):
            treadle.plan(treadle.Model(self.model), "megatron", "vllm", 1, device="tpu")

    def test_plan(self):
        model = treadle.Model(self.model)
        self.assertEqual(
            [treadle.plan(model, "megatron", "vllm", 1, device=d)["cap"] >> 20 for d in ("cpu", "cuda", "cuda:1")],
            [256, 1024, 1024],
        )

    def test_missing(self):
        """A device that is not there is refused on all ranks, by whoever looks for it."""
        self.assertEqual(ranks.run(2, "test_device", "missing", self.model), [True, True])


def missing(rank, size, name, folder):
    model = treadle.Model(folder)
    group = treadle.Group.join(name, rank, size, timeout=20)
    try:
        treadle.Switch(
            group,
            treadle.Layout(model, "megatron", size),
            treadle.Layout(model, "vllm", size),
            device="cuda:99" if rank else "cpu",
        )
    except treadle.Error as error:
        return "cuda" in str(error)


def memory_bytes(memory):
    return memory.numpy().tobytes()


class Stream:
    """A stream of torch's, with what waits for what."""

    waits = []
    finished = []

    def __init__(self, cuda_stream, device=None):
        if cuda_stream & 1:
            raise RuntimeError(f"{cuda_stream} is not the handle of a stream")
        self.cuda_stream = cuda_stream
        self.device = types.SimpleNamespace(index=device)

    def synchronize(self):
        self.finished.append(self.cuda_stream)

    def wait_stream(self, other):
        self.waits.append((self.cuda_stream, other.cuda_stream))


class TestStreams(unittest.TestCase):
    """Which streams wait for which, with a stand-in of torch."""

    def setUp(self):
        self.torch, self.current = sys.modules.get("torch"), Stream(0)
        self.capturing, self.at = False, 0
        cuda = types.SimpleNamespace(
            is_initialized=lambda: True,
            device_count=lambda: 2,
            current_stream=lambda device: self.current,
            ExternalStream=Stream,
            default_stream=lambda device: Stream(0),
            device=self.on,
            is_current_stream_capturing=lambda: self.capturing and self.at == 1,
        )
        sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
        Stream.waits = self.waits = []
        Stream.finished = self.finished = []

    @contextlib.contextmanager
    def on(self, number):
        self.at, before = number, self.at
        try:
            yield
        finally:
            self.at = before

    def tearDown(self):
        del sys.modules["torch"]
        if self.torch is not None:
            sys.modules["torch"] = self.torch

    def made(self, stream=None):
        return _device.choose("Switch", "cuda:1", stream, treadle.Group.alone())

    def test_current(self):
        device = self.made()
        device.order()
        self.assertEqual((device.stream, device.consumers_stream, self.waits), (0, 1, []))
        self.current = Stream(70)
        device.order()
        self.assertEqual(self.waits, [(0, 70)])
        device = self.made()
        device.order()
        self.assertEqual((device.stream, device.consumers_stream, len(self.waits)), (70, 70, 1))
        self.current = Stream(80)
        device.order()
        self.assertEqual(self.waits[1:], [(70, 80)])

    def test_given(self):
        """A stream that the caller names is the only one."""
        device = self.made(Stream(90))
        device.order()
        self.assertEqual((device.stream, self.waits), (90, []))
        self.assertEqual(self.made(Stream(90, device=1)).stream, 90)
        with self.assertRaisesRegex(
            treadle.Refused, "Switch: stream is of device cuda:0, and the windows lie on cuda:1"
        ):
            self.made(Stream(90, device=0))

    def test_consumers(self):
        self.current = Stream(70)
        device = self.made()
        for stream, waits in ((None, [(0, 70)]), (1, [(0, 70)]), (2, [(2, 70)]), (-1, []), (70, []), (80, [(80, 70)])):
            self.waits.clear()
            device.lead(stream)
            self.assertEqual(self.waits, waits, stream)
        device = self.made(1)  # the default stream, by CUDA's own handle
        for stream, waits in ((None, []), (1, []), (2, [(2, 0)]), (80, [(80, 0)])):
            self.waits.clear()
            device.lead(stream)
            self.assertEqual(self.waits, waits, stream)
        _device.HOST.lead(None)

    def test_capturing(self):
        """Nothing is queued on a stream that is capturing a graph."""
        self.current = Stream(70)
        device, given = self.made(), self.made(Stream(90))
        self.current = Stream(80)
        self.capturing = True
        for call in (device.order, device.finish, lambda: device.lead(80), lambda: given.lead(80)):
            with self.assertRaisesRegex(treadle.Refused, "stream 0x50 of cuda:1 is capturing a graph"):
                call()
        given.order()
        device.lead(-1)
        self.assertEqual((self.waits, self.finished, self.at), ([], [], 0))

    def test_finish(self):
        """What reads a window on torch's current stream is done before the window is released."""
        self.current = Stream(70)
        self.made().finish()
        _device.HOST.finish()
        self.assertEqual(self.finished, [70])

    def test_release(self):
        """finish() comes before the release, and close() closes where it fails."""
        said = []
        weights = treadle.Attached.__new__(treadle.Attached)
        weights._object = types.SimpleNamespace(use=lambda what: None, is_here=True)
        weights._source = types.SimpleNamespace(device=self.made())
        weights._held = [1, 2]
        self.current = Stream(70)
        with unittest.mock.patch.object(_library, "call", lambda name, *arguments: said.append((name, *self.finished))):
            weights.release()
            self.assertEqual(said, [("treadle_attached_release", 70)])
            self.capturing = True
            with self.assertRaisesRegex(treadle.Refused, "capturing"):
                weights.close()
        self.assertEqual((len(said), weights._object), (1, None))

    def test_unused(self):
        """torch that was imported, and has not been used on a device, has given nothing to any stream."""
        sys.modules["torch"].cuda.is_initialized = lambda: False
        self.current = Stream(70)
        device = self.made()
        device.order()
        device.lead(80)
        device.finish()
        self.assertEqual((device.stream, self.waits, self.finished), (0, [], []))


def net_on_meta(folder, dtype="bfloat16"):
    """The model as modules with Hugging Face's names, without memory."""
    import torch

    net = torch.nn.Module()
    for name, array in test_switch.read_safetensors(folder).items():
        *path, last = name.split(".")
        at = net
        for part in path:
            if not hasattr(at, part):
                setattr(at, part, torch.nn.Module())
            at = getattr(at, part)
        setattr(at, last, torch.nn.Parameter(torch.empty(array.shape, dtype=getattr(torch, dtype), device="meta")))
    return net


@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class TestAdopt(ranks.Folder, unittest.TestCase):
    def switch(self, **options):
        return alone(self.model, "cpu", train="hf", **options)

    def test_parameters(self):
        import torch

        net = net_on_meta(self.model)
        net.model.norm.weight.sequence_parallel = True
        net.model.norm.weight.requires_grad_(False)
        net.shared = torch.nn.Module()
        net.shared.weight = net.model.embed_tokens.weight  # tied
        net.register_buffer("scratch", torch.empty(3, device="meta"))
        whole = test_switch.read_safetensors(self.model)
        with self.switch() as sw:
            sw.train.adopt(net)
            with self.assertRaisesRegex(treadle.Refused, "model.norm.weight|embed_tokens"):  # they are zeros
                sw.to_infer()
            sw.load()
            self.assertIs(net.shared.weight, net.model.embed_tokens.weight)
            self.assertEqual(
                (net.model.norm.weight.sequence_parallel, net.model.norm.weight.requires_grad), (True, False)
            )
            self.assertEqual(net.scratch.device.type, "meta")
            for name, parameter in net.named_parameters():
                self.assertEqual((parameter.data_ptr(), parameter.device.type), (sw.train[name].address, "cpu"), name)
                self.assertTrue((parameter.detach().view(torch.uint16).numpy() == whole[name]).all(), name)
            with torch.no_grad():
                net.model.norm.weight.fill_(3)
            sw.to_infer()
            self.assertTrue((sw.infer[FLAT].torch() == 3).all())
            self.assertTrue((sw.infer["model.embed_tokens.weight"].read() == whole["model.embed_tokens.weight"]).all())
            with self.assertRaisesRegex(treadle.State, "adopt: rank 0: in mode infer; switch to train first"):
                sw.train.adopt(net_on_meta(self.model))

    def test_mode(self):
        """Params that are on the device in another mode are not adopted there."""
        with self.switch(offload=[]) as sw:
            sw.load()
            sw.to_infer()
            self.assertEqual(sw.train[FLAT].torch().numel(), 256)
            with self.assertRaisesRegex(treadle.State, "adopt: rank 0: in mode infer; switch to train first"):
                sw.train.adopt(net_on_meta(self.model))

    def test_buffers(self):
        """A persistent buffer that the layout has is a view, too."""
        import torch

        net = net_on_meta(self.model)
        weight = net.model.norm.weight
        del net.model.norm.weight
        net.model.norm.register_buffer("weight", weight.detach())
        with self.switch() as sw:
            sw.train.adopt(net)
            self.assertEqual(net.model.norm.weight.data_ptr(), sw.train[FLAT].address)
            self.assertNotIsInstance(net.model.norm.weight, torch.nn.Parameter)

    def test_refused(self):
        import torch

        def changed(change):
            net = net_on_meta(self.model)
            change(net)
            return net

        def put(tensor, name="weight"):
            return lambda net: setattr(net.model.norm, name, torch.nn.Parameter(tensor))

        def noted(name):
            return lambda net: setattr(net.model.norm.weight, name, True)

        def tie(net):
            net.model.norm.weight = net.model.layers.get_submodule("0").input_layernorm.weight

        meta = torch.empty(256, dtype=torch.bfloat16, device="meta")
        with self.switch() as sw:
            for change, words in (
                (put(torch.zeros(256, dtype=torch.bfloat16)), "'model.norm.weight' has memory on device cpu"),
                (put(meta[:-1]), r"has shape \[255\], and hf has \[256\]"),
                (put(meta.float()), "is of float32, and hf has bfloat16"),
                (
                    put(meta, "wieght"),
                    "'model.norm.wieght' is not a storage tensor of hf; the nearest is 'model.norm.weight'",
                ),
                (
                    noted("main_grad"),
                    "lies in a flat buffer of Megatron's: give it to the switch as one of train_tensors",
                ),
                (noted("_is_flat_param"), "a flat parameter of FSDP1"),
                (noted("placements"), "is a DTensor"),
                (tie, "are one tensor of the module, and 2 of hf"),
            ):
                net = changed(change)
                before = dict(net.named_parameters())
                with self.subTest(words=words), self.assertRaisesRegex(treadle.Refused, words):
                    sw.train.adopt(net)
                self.assertTrue(all(before[name] is parameter for name, parameter in net.named_parameters()))
            for window in (sw.infer, sw.grads):
                with self.assertRaisesRegex(treadle.Refused, "only the train window"):
                    window.adopt(net_on_meta(self.model))
            with self.assertRaisesRegex(treadle.Refused, "a dict is not a module"):
                sw.train.adopt({})
        own = torch.zeros(256, dtype=torch.bfloat16)
        with (
            self.switch(train_tensors={FLAT: own}) as sw,
            self.assertRaisesRegex(treadle.Refused, "was given to the switch as one of train_tensors"),
        ):
            sw.train.adopt(net_on_meta(self.model))

    def test_dtensor(self):
        import torch
        from test_torch import FakeGroup
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import Shard, distribute_tensor

        with FakeGroup(0, 2), self.switch() as sw:
            net = net_on_meta(self.model)
            mesh = DeviceMesh("cpu", torch.arange(2))
            net.model.norm.weight = torch.nn.Parameter(
                distribute_tensor(net.model.norm.weight.detach(), mesh, [Shard(0)], src_data_rank=None)
            )
            with self.assertRaisesRegex(treadle.Refused, "'model.norm.weight' is a DTensor.*train_tensors"):
                sw.train.adopt(net)


if __name__ == "__main__":
    unittest.main()
