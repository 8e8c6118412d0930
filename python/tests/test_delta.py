"""Updates between nodes of which only what has changed travels."""

import importlib.util
import os
import unittest

import ranks
import test_group
import test_switch

import treadle


def meet(folder, rank, size, nodes, net):
    """A group on this many nodes, by a store."""
    if net == "torch":
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method=f"file://{folder}/torch", rank=rank, world_size=size)
        return treadle.Group.torch(net=net, nodes=nodes)
    return treadle.Group.store(test_group.Files(folder), rank, size, nodes=nodes, net=net)


def updates(rank, size, name, folder, store, nodes, net, train):
    import numpy

    model = treadle.Model(folder)
    group = meet(store, rank, size, nodes, net)
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
    def play(self, name, nodes, net="tcp"):
        store = os.path.join(self.folder, name)
        os.mkdir(store)
        return ranks.run(4, "test_delta", "updates", self.model, store, nodes, net, "megatron:tp=2,pp=2")

    def test_two_nodes(self):
        self.check(self.play("two", 2))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_by_torch(self):
        self.check(self.play("torch", 2, "torch"))

    def check(self, answers):
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
