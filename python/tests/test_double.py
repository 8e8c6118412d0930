"""Updates of which the next version lies beside the one that is served."""

import unittest

import ranks
import test_switch

import treadle


def updates(rank, size, name, folder):
    import numpy

    model = treadle.Model(folder)
    group = treadle.Group.join(name, rank, size)
    train, infer = treadle.Layout(model, f"megatron:tp={size}", size), treadle.Layout(model, f"vllm:tp={size}", size)
    whole = test_switch.read_safetensors(folder)
    served, seen = {}, []

    def unbind():  # all ranks have written the next version
        seen.append(all(numpy.array_equal(array, served[name]) for name, array in arrays.items()))

    with treadle.Switch(group, train, infer, page=4096, double=True, unbind=unbind) as sw:
        sw.load()
        sw.to_infer()
        arrays = sw.infer.numpy()
        addresses = [array.ctypes.data for array in arrays.values()]
        served.update({name: array.copy() for name, array in arrays.items()})
        for step in range(3):
            for array in sw.train.numpy().values():
                array ^= 0x8000
            for name in whole:
                whole[name] = whole[name] ^ 0x8000
            version = sw.update() if step % 2 else sw.update(wait=False).result(60)
            assert version == step + 2
            test_switch.compare(arrays, test_switch.vllm_cut(whole, 4, size, rank))
            assert [array.ctypes.data for array in sw.infer.numpy().values()] == addresses
            assert 0 < sw.stats["unbound_seconds"] <= sw.stats["seconds"]
            served.update({name: array.copy() for name, array in arrays.items()})
        try:
            sw.infer.handle()
        except treadle.Refused as error:
            assert "double_infer" in str(error)
        else:
            raise AssertionError("a handle was given")
    return seen


class TestDouble(ranks.Folder, unittest.TestCase):
    def test_updates(self):
        for seen in ranks.run(2, "test_double", "updates", self.model):
            self.assertEqual(seen, [True] * 3)

    def test_refused(self):
        model = treadle.Model(self.model)
        layouts = treadle.Layout(model, "hf", 1), treadle.Layout(model, "vllm", 1)
        for options, words in (({"offload": ["params"]}, "params that leave"), ({"alias": True}, "alias")):
            with self.assertRaisesRegex(treadle.Refused, words):
                treadle.Switch(treadle.Group.alone(), *layouts, double=True, **options)


if __name__ == "__main__":
    unittest.main()
