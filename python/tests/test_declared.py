"""Layouts of shards that a source declares, and texts of layouts that are sent. Names and fields are those of vLLM 0.33
and verl 0.9.1; tools/test-plugins has the packages' own classes."""

import os
import tempfile
import types
import unittest

import ranks
import test_switch

import treadle


class Shard:
    def __init__(self, dim):
        self.dim = dim


class Replicate:
    pass


class Source:
    """A source of vLLM's: each tensor cut on a mesh of these owners."""

    def __init__(self, whole, owners, mesh_shape, placements, rank):
        self.metadata = [
            types.SimpleNamespace(
                name=name,
                dtype="torch.bfloat16",
                shape=array.shape,
                owners=owners,
                mesh_shape=mesh_shape,
                placements=placements,
            )
            for name, array in whole.items()
        ]
        self.local = (
            {
                name: cut(array, owners.index(rank), mesh_shape or (len(owners),), placements)
                for name, array in whole.items()
            }
            if rank in owners
            else {}
        )

    def iter_local(self):
        return iter(self.local.items())


def cut(array, number, shape, placements):
    """The shard of a mesh's rank, as torch.chunk cuts, outer axes first."""
    import numpy

    coordinates = numpy.unravel_index(number, shape)
    for size, at, placement in zip(shape, coordinates, placements or [Replicate()] * len(shape)):
        if isinstance(placement, Shard) and placement.dim < array.ndim:
            step = -(-array.shape[placement.dim] // size)
            array = numpy.take(
                array,
                range(min(at * step, array.shape[placement.dim]), min((at + 1) * step, array.shape[placement.dim])),
                placement.dim,
            )
    return numpy.ascontiguousarray(array)


KINDS = {
    "one": ((0, 1, 2), None, [Shard(0)]),
    "grid": ((2, 0, 3, 1), (2, 2), [Shard(0), Replicate()]),
    "twice": ((0, 1, 2, 3), (2, 2), [Shard(0), Shard(0)]),
    "replicated": ((0, 2), None, None),
}


def move(rank, size, name, folder, kind):
    """The last rank has no source and takes the layout; what arrives is what the shards hold."""
    model, group = treadle.Model(folder), treadle.Group.join(name, rank, size)
    whole = test_switch.read_safetensors(folder)
    source = Source(whole, *KINDS[kind], rank) if rank < size - 1 else None
    train = treadle.Layout.of(model, source, group)
    again = treadle.Layout.read(model, train.description, size)
    for r in range(size):
        assert again.storages(r) == train.storages(r), r
    path = os.path.join(tempfile.gettempdir(), f"{name}-{rank}.json")
    with open(path, "w") as file:
        file.write(train.description)
    assert treadle.Layout(model, f"placements:@{path}", size).storages(0) == train.storages(0)
    os.unlink(path)
    infer = treadle.Layout(model, f"vllm:tp=1,on={size - 1}", size)
    with treadle.Switch(
        group, again if rank % 2 else train, infer, train_tensors=source.local if source else None
    ) as sw:
        sw.to_infer()
        if rank == size - 1:
            test_switch.compare(sw.infer.numpy(), test_switch.vllm_cut(whole, 4, 1, 0))
    return True


def refuse(rank, size, name, folder, what):
    model, group = treadle.Model(folder), treadle.Group.join(name, rank, size)
    whole = test_switch.read_safetensors(folder)
    source = Source(whole, (0, 1), None, [Shard(0)], rank)
    first = source.metadata[0]
    if what == "short" and rank == 1:
        source.local[first.name] = source.local[first.name][1:]
    if what == "owner" and rank == 1:
        del source.local[first.name]
    if what == "partial":
        first.placements = [object()]
    if what == "full" and rank == 1:
        source = types.SimpleNamespace(
            metadata=source.metadata, __iter__=None, iter_local=source.iter_local, implements_iter_local=lambda: False
        )
    if what == "place":
        spec = types.SimpleNamespace(full_shape=first.shape, mesh=None, placements=None, place=0)
        source = [(first.name, source.local[first.name], spec)]
    try:
        treadle.Layout.of(model, source, group)
    except treadle.Error as error:
        return str(error)
    return "it was taken"


class TestDeclared(ranks.Folder, unittest.TestCase):
    def test_moves(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                self.assertEqual(ranks.run(5, "test_declared", "move", self.model, kind), [True] * 5)

    def test_refused(self):
        for what, words in {
            "short": (
                "rank 1: '{}': the local tensor has shape [255, 256] and 130560 bytes; rank 1's part of [512, 256], "
                "as declared, has 131072 bytes"
            ),
            "owner": "rank 1: '{}': rank 1 has no shard of it, and is one of its owners [0, 1]",
            "partial": "'{}' has placement <object",
            "full": "rank 1: SimpleNamespace has no iter_local: it gives full tensors alone",
            "place": "'{}': its ShardSpec has place",
        }.items():
            with self.subTest(what=what):
                first = next(iter(test_switch.read_safetensors(self.model)))
                for answer in ranks.run(2, "test_declared", "refuse", self.model, what):
                    self.assertIn(words.format(first), answer)

    def test_texts(self):
        model = treadle.Model(self.model)
        for text in (
            "",
            "{}",
            '{"meshes":[],"tensors":[{"tensor":"x","dtype":"bfloat16","shape":[1],"mesh":0,"placements":"Q0"}]}',
            "[1,2]",
        ):
            with self.subTest(text=text), self.assertRaises(treadle.Refused):
                treadle.Layout.read(model, text, 1)
        self.assertEqual(treadle.Layout(model, "hf", 1).description, "hf")


if __name__ == "__main__":
    unittest.main()
