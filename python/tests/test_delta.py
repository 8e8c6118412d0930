"""Updates between nodes of which only what has changed travels."""

import ctypes
import os
import unittest

import ranks
import test_group
import test_switch

import treadle


def meet(folder, rank, size, nodes):
    """A group on so many nodes, by a store."""
    from treadle import _abi, _library, group

    calls = group._StoreCalls(test_group.Files(folder))
    given = _library.sized(_abi.treadle_store, set=calls.set, get=calls.get, job=b"delta")
    return treadle.Group._make("treadle_group_store", ctypes.byref(given), rank, size, rank * nodes // size, 60, callbacks=calls.callbacks)


def updates(rank, size, name, folder, store, nodes, train):
    import numpy

    model = treadle.Model(folder)
    group = meet(store, rank, size, nodes)
    source, target = treadle.Layout(model, train, size), treadle.Layout(model, f"vllm:tp={size}", size)
    whole = test_switch.read_safetensors(folder)
    shares = []
    with treadle.Switch(group, source, target, cap=16 << 20, page=4096, delta=True) as sw:
        sw.load()
        sw.to_infer()
        shares.append((sw.stats["dense_bytes"], sw.stats["delta_bytes"]))
        for step in range(4):
            chosen = [step, 511 - step]  # rows of the embedding, as NaN by turns
            bits = numpy.uint16(0x7FC0 + step if step % 2 else step)
            whole["model.embed_tokens.weight"] = whole["model.embed_tokens.weight"].copy()
            whole["model.embed_tokens.weight"][chosen] = bits
            for name, array in sw.train.numpy().items():
                if "word_embeddings" in name:
                    first = rank % 2 * len(array)
                    for row in chosen:
                        if first <= row < first + len(array):
                            array[row - first] = bits
            sw.update()
            test_switch.compare(sw.infer.numpy(), test_switch.vllm_cut(whole, 4, size, rank))
            shares.append((sw.stats["dense_bytes"], sw.stats["delta_bytes"]))
        assert sw.stats["host_bytes"] > 0 if nodes > 1 else sw.stats["host_bytes"] == 0
    return shares


class TestDelta(ranks.Folder, unittest.TestCase):
    def play(self, name, nodes):
        store = os.path.join(self.folder, name)
        os.mkdir(store)
        return ranks.run(4, "test_delta", "updates", self.model, store, nodes, "megatron:tp=2,pp=2")

    def test_two_nodes(self):
        answers = self.play("two", 2)
        total = [[sum(of_rank[i][k] for of_rank in answers) for k in range(2)] for i in range(5)]
        self.assertEqual(*total[0])
        self.assertGreater(total[0][0], 100000)
        for dense, delta in total[1:]:
            self.assertEqual(dense, total[0][0])
            self.assertLess(delta, dense / 20)

    def test_one_node(self):
        for shares in self.play("one", 1):
            self.assertEqual(shares, [[0, 0]] * 5)


if __name__ == "__main__":
    unittest.main()
