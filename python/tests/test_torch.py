"""DTensors as layouts, from real DTensors: the golden cases of torch, random meshes and placements on torch's fake
group, and processes over gloo.

They run where torch is (TORCH=1 make test-python installs it)."""

import importlib.util
import json
import os
import random
import tempfile
import unittest
import warnings

import ranks
import test_switch

import treadle
from treadle import _placements

HAS_TORCH = importlib.util.find_spec("torch") is not None
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
FAMILY = """family: shapes
model_types: [shapes]
dims: {a: fa, b: fb, c: fc, d: fd, e: fe, f: ff, n: fn}
layers: '1'
tensors:
  - {name: w1, shape: [a*b], when: n == 1}
  - {name: w2, shape: [a*b, c*d], when: n == 2}
  - {name: w3, shape: [a*b, c*d, e], when: n == 3}
  - {name: w4, shape: [a*b, c*d, e, f], when: n == 4}
engines: {}
"""


class Shapes:
    """Models of one tensor of any shape."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "shapes.yaml"), "w", encoding="ascii") as file:
            file.write(FAMILY)

    def model(self, shape):
        factor = lambda n: next((k for k in range(2, n) if n % k == 0 and k * k <= n), 1)  # noqa: E731
        n = [*shape, 1, 1, 1][:4]
        path = os.path.join(self.folder, "config.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump(
                {
                    "model_type": "shapes",
                    "dtype": "float32",
                    "fa": factor(n[0]),
                    "fb": n[0] // factor(n[0]),
                    "fc": factor(n[1]),
                    "fd": n[1] // factor(n[1]),
                    "fe": n[2],
                    "ff": n[3],
                    "fn": len(shape),
                },
                file,
            )
        return treadle.Model(path, families=self.folder)


def indices(layout, rank, name):
    """The canonical index of each element of a storage tensor."""
    return [run.start + i * run.stride for run in layout.runs(rank, name) for i in range(run.elems)]


def layout_of(model, ranks_, description):
    layout = treadle.Layout.__new__(treadle.Layout)
    layout._take(model, _placements.make(model, ranks_, description))
    return layout


class FakeGroup:
    """torch's fake process group: this process is one rank, and nobody else is there."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def __enter__(self):
        import torch.distributed as dist
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=self.rank, world_size=self.size, store=FakeStore())

    def __exit__(self, *_):
        import torch.distributed as dist

        dist.destroy_process_group()


def read_placements(text):
    """S0 or T0/2 or R, one after the other."""
    import re

    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import Partial, _StridedShard

    return [
        Replicate()
        if word == "R"
        else Partial()
        if word == "P"
        else Shard(int(word[1:]))
        if word[0] == "S"
        else _StridedShard(int(word[1 : word.index("/")]), split_factor=int(word[word.index("/") + 1 :]))
        for word in re.findall(r"R|P|S\d+|T\d+/\d+", text)
    ]


def index_tensor(shape):
    import math

    import torch

    return torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)


@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class TestGolden(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="treadle-test-")
        self.addCleanup(folder.cleanup)
        self.shapes = Shapes(folder.name)

    def cases(self, name):
        path = os.path.join(GOLDEN, name)
        if not os.path.exists(path):
            self.skipTest(f"{path} is not there")
        with open(path, encoding="ascii") as file:
            return json.load(file)["cases"]

    def compare(self, model, description, size, rank, runs, words):
        layout = layout_of(model, size, description)
        wanted = [start + i for _, start, count in runs for i in range(count)]
        self.assertEqual(indices(layout, rank, description.tensors[0].storage), wanted, words)

    def test_dtensor(self):
        import math

        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import distribute_tensor

        count = 0
        for case in self.cases("dtensor.json"):
            shape, placements = case["shape"], read_placements(case["placements"])
            size = math.prod(case["mesh"])
            model = self.shapes.model(shape)
            for rank, about in enumerate(case["ranks"]):
                with FakeGroup(rank, size):
                    import torch

                    mesh = DeviceMesh("cpu", torch.arange(size).reshape(case["mesh"]))
                    if "P" in case["placements"]:
                        continue
                    tensor = distribute_tensor(index_tensor(shape), mesh, placements, src_data_rank=None)
                    description = _placements.here([(f"w{len(shape)}", tensor)], rank)
                self.compare(
                    model, description, size, rank, about["runs"], (case["mesh"], shape, case["placements"], rank)
                )
                self.assertEqual(
                    tensor.to_local().flatten().tolist(), [s + i for _, s, c in about["runs"] for i in range(c)]
                )
                count += 1
        self.assertGreater(count, 100)

    def test_fsdp2(self):
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        count = 0
        for case in self.cases("fsdp2.json"):
            if "error" in case:
                continue
            size, dims = case["world"], case.get("mesh") or {"dp": case["world"]}
            outer, tp_dims = [name for name in dims if name != "tp"], case.get("tp_dim_per_param")
            for about in case["ranks"]:
                rank = about["rank"]
                with FakeGroup(rank, size):
                    module = torch.nn.Module()
                    mesh = init_device_mesh("cpu", tuple(dims.values()), mesh_dim_names=tuple(dims))
                    for i, shape in enumerate(case["params"]):
                        whole = index_tensor(shape)
                        if tp_dims:
                            dim = tp_dims[i]
                            whole = distribute_tensor(
                                whole, mesh["tp"], [Replicate() if dim is None else Shard(dim)], src_data_rank=None
                            )
                        setattr(module, f"p{i}", torch.nn.Parameter(whole))
                    chosen = case.get("fsdp_dim_per_param")
                    by_id = (
                        {id(p): Shard(chosen[i]) for i, p in enumerate(module.parameters()) if chosen[i] is not None}
                        if chosen
                        else {}
                    )
                    fully_shard(
                        module,
                        mesh=mesh[tuple(outer)] if "tp" in dims else mesh,
                        shard_placement_fn=(lambda p: by_id.get(id(p))) if chosen else None,
                    )
                    described = [
                        _placements.here([(f"w{len(shape)}", getattr(module, f"p{i}"))], rank)
                        for i, shape in enumerate(case["params"])
                    ]
                for i, (shape, description) in enumerate(zip(case["params"], described)):
                    self.compare(
                        self.shapes.model(shape),
                        description,
                        size,
                        rank,
                        about["params"][i]["runs"],
                        (dims, tp_dims, shape, rank),
                    )
                    count += 1
        self.assertGreater(count, 100)

    def test_random(self):
        import math

        import torch
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.placement_types import _StridedShard

        seed = int(os.environ.get("TREADLE_SEED", "1"))
        draw = random.Random(seed)
        for number in range(500):
            sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 3))]
            size = math.prod(sizes)
            world = size + draw.choice((0, 0, 0, 1, 3))
            members = draw.sample(range(world), size) if draw.random() < 0.5 else list(range(size))
            shape = [draw.randint(1, 13) for _ in range(draw.randint(1, 4))]
            placements = [
                draw.choice(
                    (
                        Replicate(),
                        Shard(draw.randrange(len(shape))),
                        Shard(draw.randrange(len(shape))),
                        _StridedShard(draw.randrange(len(shape)), split_factor=draw.randint(1, 4)),
                    )
                )
                for _ in sizes
            ]
            rank = draw.choice(members)
            words = (
                f"TREADLE_SEED={seed}, number {number}: mesh {sizes} of {members}, shape {shape}, "
                f"{placements}, rank {rank}"
            )
            with FakeGroup(rank, world):
                mesh = DeviceMesh("cpu", torch.tensor(members).reshape(sizes))
                tensor = distribute_tensor(index_tensor(shape), mesh, placements, src_data_rank=None)
                description = _placements.here([(f"w{len(shape)}", tensor)], rank)
            layout = layout_of(self.shapes.model(shape), world, description)
            self.assertEqual(
                indices(layout, rank, f"w{len(shape)}"), tensor.to_local().flatten().long().tolist(), words
            )
            for other in set(range(world)) - set(members):
                self.assertEqual(layout.storages(other), [], words)


MOVERS = [
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "monitored_barrier",
]


def forbid_moving():
    """From now on no function of torch.distributed that moves tensors or objects may be called."""
    import torch.distributed as dist

    for name in MOVERS:

        def refuse(*_, name=name, **__):
            raise AssertionError(f"torch.distributed.{name} was called")

        setattr(dist, name, refuse)
        setattr(dist.distributed_c10d, name, refuse)


def build(folder):
    """The model as modules with Hugging Face's names, in fp32."""
    import torch

    net = torch.nn.Module()
    for name, array in test_switch.read_safetensors(folder).items():
        *path, last = name.split(".")
        at = net
        for part in path:
            if not hasattr(at, part):
                setattr(at, part, torch.nn.Module())
            at = getattr(at, part)
        setattr(at, last, torch.nn.Parameter(torch.from_numpy(array.copy()).view(torch.bfloat16).float()))
    return net


def over_gloo(rank, size, name, folder, how):
    import numpy
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=size)
    net = build(folder)
    if how == "fsdp2":
        mesh = init_device_mesh("cpu", (size,))
    elif how == "hsdp":
        mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard"))
    else:  # tensor parallel below
        whole = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
        mesh = whole["dp"]
        for path, parameter in list(net.named_parameters()):
            if parameter.dim() == 2:
                at = net.get_submodule(path.rsplit(".", 1)[0])
                at.weight = torch.nn.Parameter(
                    distribute_tensor(
                        parameter.data, whole["tp"], [Shard(1 if "o_proj" in path or "down" in path else 0)]
                    )
                )
    for layer in net.model.layers.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    model = treadle.Model(folder)
    group = treadle.Group.torch()
    forbid_moving()
    train = treadle.Layout.of(model, net.named_parameters(), group)
    infer = treadle.Layout(model, f"vllm:tp={size}", size)
    engine = {s.name: torch.zeros(s.shape, dtype=torch.bfloat16) for s in infer.storages(rank)}
    options = {"infer_tensors": engine} if how != "hsdp" else {}
    where = {n: p.to_local().data_ptr() for n, p in net.named_parameters()}
    whole = test_switch.read_safetensors(folder)
    with treadle.Switch(
        group, train, infer, train_tensors=net.named_parameters(), page=4096, cap=4 << 20, **options
    ) as sw:
        addresses = {n: t.data_ptr() for n, t in sw.infer.torch().items()}
        for step in range(3):
            assert sw.to_infer() == step + 1
            weights = {n: t.view(torch.uint16).numpy() for n, t in sw.infer.torch().items()}
            test_switch.compare(weights, test_switch.vllm_cut(whole, 4, size, rank))
            assert {n: t.data_ptr() for n, t in sw.infer.torch().items()} == addresses
            sw.to_train()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.to_local().mul_(2)  # exact in bf16, too
            whole = {
                n: (torch.from_numpy(a.copy()).view(torch.bfloat16) * 2).view(torch.uint16).numpy()
                for n, a in whole.items()
            }
        assert {n: p.to_local().data_ptr() for n, p in net.named_parameters()} == where
        text = train.text
    dist.destroy_process_group()
    return [text.split(":")[0], isinstance(addresses, dict) and numpy is not None]


def differing(rank, size, name, folder, how):
    """Ranks that do not describe the same layout."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", (size,))
    model = treadle.Model(folder)
    group = treadle.Group.torch(timeout=20)
    tensors = {
        t.name: distribute_tensor(
            torch.zeros(t.shape, dtype=torch.bfloat16),
            mesh,
            [Shard(0) if rank == 0 or how == "names" else Replicate()],
            src_data_rank=None,
        )
        for t in model.tensors
        if t.same_as is None
    }
    if how == "names" and rank == 1:
        tensors["model.nrm.weight"] = tensors.pop("model.norm.weight")
    if how == "absent":
        tensors = tensors if rank == 0 else None
    try:
        layout = treadle.Layout.of(model, tensors, group)
        answer = ["made", layout.storages(1)[0].shape]
    except treadle.Error as error:
        answer = [type(error).__name__, str(error)]
    dist.destroy_process_group()
    return answer


@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class TestProcesses(ranks.Folder, unittest.TestCase):
    def test_over_gloo(self):
        for size, how in ((2, "fsdp2"), (4, "fsdp2"), (4, "hsdp"), (4, "tp")):
            with self.subTest(size=size, how=how):
                answers = ranks.run(size, "test_torch", "over_gloo", self.model, how)
                self.assertEqual(answers, [["placements", True]] * size)

    def test_differing(self):
        self.assertEqual({a[0] for a in ranks.run(2, "test_torch", "differing", self.model, "placements")}, {"Refused"})
        answers = ranks.run(2, "test_torch", "differing", self.model, "placements")
        self.assertIn(
            "ranks 0 and 1 describe different layouts: 'model.embed_tokens.weight' is bfloat16 "
            "with placements S0 there",
            answers[0][1],
        )
        answers = ranks.run(2, "test_torch", "differing", self.model, "names")
        self.assertIn("describe different layouts", answers[0][1])
        self.assertEqual(ranks.run(2, "test_torch", "differing", self.model, "absent"), [["made", [256, 256]]] * 2)


def net_of(model, buffers):
    """A module with the model's tensors; those whose names end so are buffers, one more is not persistent."""
    import torch

    net = torch.nn.Module()
    for tensor in model.tensors:
        if tensor.same_as is not None:
            continue
        at, *rest = net, *tensor.name.split(".")
        for part in rest[:-1]:
            if part not in dict(at.named_children()):
                at.add_module(part, torch.nn.Module())
            at = at.get_submodule(part)
        memory = torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype))
        if tensor.name.endswith(buffers):
            at.register_buffer(rest[-1], memory)
        else:
            at.register_parameter(rest[-1], torch.nn.Parameter(memory))
    net.register_buffer("scratch", torch.zeros(3), persistent=False)
    return net


@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class TestModule(unittest.TestCase):
    """A module has buffers, too: the routing bias of an MoE is one."""

    def test_buffers(self):
        import torch

        model = treadle.Model(os.path.join(GOLDEN, "models", "dsv3-yarn", "config.json"))
        bias = next(t.name for t in model.tensors if t.name.endswith("e_score_correction_bias"))
        net, group = net_of(model, "e_score_correction_bias"), treadle.Group.alone()
        self.assertIn(bias, dict(net.named_buffers()))
        layout = treadle.Layout.of(model, net, group)
        self.assertIn(bias, {s.name for s in layout.storages(0)})
        self.assertEqual(layout.text, treadle.Layout.of(model, net.state_dict(), group).text)
        for parameters in (net.named_parameters(), dict(net.named_parameters())):
            with self.assertRaisesRegex(
                treadle.Refused, f"no rank holds {bias}; it may be a buffer of the module.*pass the module itself"
            ):
                treadle.Layout.of(model, parameters, group)
        net.register_buffer("scratch", torch.zeros(3))
        with self.assertRaisesRegex(treadle.Refused, "scratch"):
            treadle.Layout.of(model, net, group)
        self.assertEqual(treadle.Layout.of(model, net, group, {"scratch": None}).text, layout.text)
        infer = treadle.Layout(model, "vllm:tp=1", 1)
        with treadle.Switch(
            group, treadle.Layout.of(model, net, group, {"scratch": None}), infer, train_tensors=net
        ) as sw:
            dict(net.named_buffers())[bias][0] = 7
            sw.to_infer()
            name = next(s.name for s in infer.storages(0) if s.name.endswith("e_score_correction_bias"))
            self.assertEqual(sw.infer.torch()[name].flatten()[0], 7)


@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class TestRefused(ranks.Folder, unittest.TestCase):
    def test_tensors(self):
        import torch
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

        model = treadle.Model(self.model)
        norm = "model.norm.weight"
        with FakeGroup(1, 4):
            mesh = DeviceMesh("cpu", torch.arange(4))
            other = DeviceMesh("cpu", torch.tensor([0, 1]))
            whole = {
                t.name: distribute_tensor(
                    torch.zeros(t.shape, dtype=torch.bfloat16), mesh, [Shard(0)], src_data_rank=None
                )
                for t in model.tensors
                if t.same_as is None
            }
            for tensor, words in (
                (
                    DTensor.from_local(torch.zeros(256), mesh, [Partial()], run_check=False),
                    "a partial sum has no value yet",
                ),
                (torch.zeros(256, dtype=torch.float64), "has dtype float64"),
                (torch.zeros(256, device="meta"), "meta device"),
            ):
                with self.assertRaisesRegex(treadle.Refused, words):
                    _placements.here({norm: tensor}, 1)
            with self.assertRaisesRegex(treadle.Refused, "has not rank 3"):
                _placements.here({norm: distribute_tensor(torch.zeros(256), other, [Shard(0)], src_data_rank=None)}, 3)
            spoiled = {**whole, "model.nrm.weight": whole[norm]}
            with self.assertRaisesRegex(treadle.Refused, norm):
                layout_of(model, 4, _placements.here(spoiled, 1))
            wrapped = {
                "_orig_mod." + n.replace("model.layers", "model._fsdp_wrapped_module.layers"): t
                for n, t in whole.items()
            }
            wrapped["model._extra_state"] = None
            wrapped["model.rotary_emb.inv_freq"] = torch.zeros(3)
            self.assertEqual(_placements.here(wrapped, 1), _placements.here(whole, 1))
            for spoiled, words in (
                (
                    {norm: torch.zeros(256, device="meta")},
                    "Layout.of: rank 0: 'model.norm.weight' is on the meta device",
                ),
                ({norm: torch.zeros(255, dtype=torch.bfloat16)}, "model.norm.weight.*255"),
                ({}, "no rank holds model.embed_tokens.weight"),
            ):
                with self.assertRaisesRegex(treadle.Refused, words):
                    treadle.Layout.of(model, spoiled, treadle.Group.alone())
            renamed = _placements.here({"x": whole[norm], "y": None}, 1, None, {"x": norm})
            self.assertEqual(renamed.tensors[0].tensor, norm)

    def test_own(self):
        import torch

        model = treadle.Model(self.model)
        group = treadle.Group.alone()
        train, infer = treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
        name = "decoder.final_layernorm.weight"
        with torch._subclasses.FakeTensorMode():
            fake = torch.zeros(256, dtype=torch.bfloat16)
        emptied = torch.zeros(256, dtype=torch.bfloat16)
        emptied.untyped_storage().resize_(0)
        for tensor, words in (
            (torch.zeros(512, dtype=torch.bfloat16)[::2], "must be contiguous"),
            (torch.zeros(256, dtype=torch.bfloat16, device="meta"), "rank 0: train tensor '.*' is on device meta"),
            (torch.zeros(256), "is of float32"),
            (
                torch.zeros(256, dtype=torch.bfloat16).to_sparse(),
                "has torch's layout torch.sparse_coo; it must be torch.strided",
            ),
            (torch.nn.parameter.UninitializedParameter(dtype=torch.bfloat16), "that has no memory"),
            (fake, "FakeTensor that has no memory"),
            (emptied, "has 512 bytes, and its storage 0: it was freed or resized"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's, of the address of a FakeTensor
                treadle.Switch(group, train, infer, train_tensors={name: tensor})
        freed = torch.zeros(256, dtype=torch.bfloat16)
        with treadle.Switch(group, train, infer, train_tensors={name: freed}) as sw:
            sw.load()
            sw.to_infer()
            sw.to_train()
            freed.untyped_storage().resize_(0)
            with self.assertRaisesRegex(treadle.State, "freed, resized or replaced"):
                sw.to_infer()
            self.assertEqual(sw.mode, "train")

    def test_memory(self):
        import torch

        model = treadle.Model(self.model)
        with treadle.Switch(
            treadle.Group.alone(), treadle.Layout(model, "megatron", 1), treadle.Layout(model, "vllm", 1)
        ) as sw:
            sw.load()
            memory = sw.train["decoder.final_layernorm.weight"]
            for tensor in (memory.torch(), torch.from_dlpack(memory)):
                self.assertEqual(
                    (tensor.dtype, tuple(tensor.shape), tensor.data_ptr()), (torch.bfloat16, (256,), memory.address)
                )
            memory.torch().fill_(3)
            self.assertTrue((torch.from_dlpack(memory) == 3).all())
            checker = treadle.Checker(sw.train.torch())
            checker.snapshot()
            memory.torch()[0] = 4
            self.assertEqual(checker.compare(), ["decoder.final_layernorm.weight"])


if __name__ == "__main__":
    unittest.main()
