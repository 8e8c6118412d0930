"""Tensors that exist already, on both sides."""

import os
import tempfile
import unittest

import ranks
import test_switch

import treadle


def move(rank, size, name, folder, train, sides, saved):
    import numpy

    model = treadle.Model(folder)
    group = treadle.Group.join(name, rank, size, timeout=60)
    source, target = treadle.Layout(model, train, size), treadle.Layout(model, f"vllm:tp={size}", size)
    whole = test_switch.read_safetensors(folder)
    own = [
        {(s.chunk, s.name) if s.chunk else s.name: numpy.full(s.shape, 7, "uint16") for s in layout.storages(rank)}
        for layout in (source, target)
    ]
    if "some" in sides:  # every second one
        own = [dict(list(side.items())[rank % 2 :: 2]) for side in own]
    options = {}
    if "train" in sides:
        options["train_tensors"] = own[0]
    if "infer" in sides:
        options |= {"infer_tensors": own[1].items()} | ({} if "train" in sides else {"keep": "host"})
    addresses = [{n: a.ctypes.data for n, a in side.items()} for side in own]
    with treadle.Switch(group, source, target, page=4096, cap=2 << 20, **options) as sw:
        sw.load()
        for step in range(3):
            sw.to_infer()
            test_switch.compare(sw.infer.numpy(), test_switch.vllm_cut(whole, 4, size, rank))
            if "infer" in sides:
                test_switch.compare(
                    own[1], {n: a for n, a in test_switch.vllm_cut(whole, 4, size, rank).items() if n in own[1]}
                )
            stats = sw.stats
            sw.to_train()
            for array in sw.train.numpy().values():
                array ^= 1
            whole = {n: a ^ numpy.uint16(1) for n, a in whole.items()}
        sw.save(os.path.join(saved, "weights"))
        if rank == 0:
            test_switch.compare(test_switch.read_safetensors(os.path.join(saved, "weights")), whole)
        if "train" in sides:
            assert all(sw.train[n].address == a for n, a in addresses[0].items())
        if "infer" in sides:
            assert all(sw.infer[n].address == a for n, a in addresses[1].items())
    return stats["staged_bytes"]


def refuse(rank, size, name, folder):
    """One rank's tensor has another shape."""
    import numpy

    model, group = treadle.Model(folder), treadle.Group.join(name, rank, size, timeout=60)
    layout = treadle.Layout(model, "hf", size)
    own = {"model.norm.weight": numpy.zeros(256 - rank, "uint16")}
    try:
        treadle.Switch(group, layout, treadle.Layout(model, "vllm:tp=1", size), train_tensors=own)
    except treadle.Error as error:
        return [type(error).__name__, str(error)]


class Module:
    """As torch's: parameters by name, which may be replaced."""

    def __init__(self, parameters):
        self.parameters = parameters

    def named_parameters(self):
        return list(self.parameters.items())

    def named_modules(self):
        return []


def replace(folder):
    """A module gets other tensors, as fully_shard gives it: those that the switch was made with live on, and hold old
    weights."""
    import numpy

    model, group = treadle.Model(folder), treadle.Group.alone()
    layout = treadle.Layout(model, "hf", 1)
    module = Module({s.name: numpy.zeros(s.shape, "uint16") for s in layout.storages(0)})
    first = dict(module.parameters)
    with treadle.Switch(group, layout, treadle.Layout(model, "vllm:tp=1", 1), train_tensors=module) as sw:
        sw.next_version()
        name = next(iter(module.parameters))
        said = []
        for other in (module.parameters[name].copy(), None):
            module.parameters = {
                n: other if n == name else tensor for n, tensor in first.items() if n != name or other is not None
            }
            try:
                sw.next_version()
                said.append("no error")
            except treadle.State as error:
                said.append(str(error))
        module.parameters = first
        assert sw.next_version() == 2
    return name, said


class TestOwn(ranks.Folder, unittest.TestCase):
    def test_bytes(self):
        for train in ("megatron:tp=2,pp=2", "fsdp2:dp=4"):
            for sides in ("train", "infer", "train infer", "train infer some"):
                with self.subTest(train=train, sides=sides), tempfile.TemporaryDirectory() as saved:
                    staged = ranks.run(4, "test_own", "move", self.model, train, sides, saved)
                    self.assertEqual(max(staged) > 0, "train" in sides, staged)

    def test_refused_on_all(self):
        (peer, heard), (kind, said) = ranks.run(2, "test_own", "refuse", self.model)
        self.assertEqual((peer, kind, heard), ("Peer", "Refused", said))
        self.assertRegex(said, r"^rank 1: train tensor 'model.norm.weight' has shape \[255\], and hf has \[256\] there")

    def test_replaced(self):
        name, (moved, gone) = replace(self.model)
        self.assertRegex(
            moved, f"rank 0: train tensor '{name}' was at 0x[0-9a-f]+ when the switch was made, and is at 0x"
        )
        self.assertEqual(
            gone, f"rank 0: train tensor '{name}' was in the module when the switch was made, and is no longer"
        )

    def test_refused(self):
        import numpy

        model = treadle.Model(self.model)
        group = treadle.Group.alone()
        train, infer = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
        norm = numpy.zeros(256, "uint16")

        def make(tensors, **options):
            with treadle.Switch(group, train, infer, train_tensors=tensors, **options):
                pass

        make({"decoder.final_layernorm.weight": norm, "decoder._extra_state": None})
        name = "decoder.final_layernorm.weight"
        for tensors, words in (
            ({"decoder.final_layernom.weight": norm}, "the nearest is 'decoder.final_layernorm.weight'"),
            ({name: norm[:-1]}, r"has shape \[255\], and megatron has \[256\]"),
            ({name: norm.astype("float32")}, "is of float32, and megatron has bfloat16"),
            ({name: numpy.zeros(512, "uint16")[::2]}, "must be contiguous"),
            ([(name, norm), ("module." + name, norm)], "is given twice"),
            ({name: [1, 2]}, "rank 0: train tensor '.*' is a list, and no tensor"),
            ({5: norm}, "rank 0: train tensor 5: names are texts"),
            ({(1, name): norm}, "is not a storage tensor of megatron; the nearest is"),
            ({name: norm, "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight": norm}, "overlap"),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(treadle.Refused, words):
                make(tensors)
        own = {s.name: numpy.zeros(s.shape, "uint16") for s in infer.storages(0)}
        most = sum(a.nbytes for a in own.values())
        with self.assertRaisesRegex(
            treadle.Refused, f"rank 0: undo_bytes is {most - 1}, and its own infer tensors have {most} bytes"
        ):
            treadle.Switch(group, train, infer, infer_tensors=own, keep="host", undo_bytes=most - 1)
        with treadle.Switch(
            group, train, infer, infer_tensors=own, offload=(), undo_bytes=most, allow_unfilled=True
        ) as sw:
            self.assertEqual(sw.stats["host_bytes"], most)
            self.assertEqual([sw.next_version(), sw.next_version()], [1, 2])
            self.assertTrue(sw.valid)
        fixed = norm.copy()
        fixed.flags.writeable = False
        with self.assertRaisesRegex(treadle.Refused, "rank 0: infer tensor 'model.norm.weight' is read-only"):
            treadle.Switch(group, train, infer, infer_tensors={"model.norm.weight": fixed}, keep="host")
        # A tensor that the switch does not write.
        with treadle.Switch(group, train, infer, train_tensors={name: fixed}, allow_unfilled=True) as sw:
            self.assertFalse(sw.train[name].numpy().flags.writeable)
            with self.assertRaisesRegex(treadle.Refused, f"load: rank 0: own train tensor '{name}' is read-only"):
                sw.load()
            sw.to_infer()
            self.assertTrue((sw.infer["model.norm.weight"].numpy() == 0).all())
        make(iter(()))
        with self.assertRaisesRegex(treadle.Refused, "offload_train_param|params"):
            make({name: norm}, offload=["params"])


if __name__ == "__main__":
    unittest.main()
