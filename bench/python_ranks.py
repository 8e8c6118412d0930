"""One of the four ranks of bench/python: python_ranks.py RANK JOB, where JOB is a JSON object. Rank 0 prints one JSON
object.

The weights have the shapes of Llama-3.2-1B, in Megatron's cut on all ranks, and go to vLLM's cut on half of them, two
replicas. A value is a hash of its tensor and its index there, so that what a method has written is compared with slices
of the whole tensors, made again by code that shares nothing with treadle. Each method is timed from barrier to barrier,
the slowest rank counts."""

import ctypes
import datetime
import json
import logging
import math
import os
import sys
import time
import types
import warnings

import torch
import torch.distributed as dist

warnings.filterwarnings('ignore')
logging.getLogger('torch.utils.cpp_extension').setLevel(logging.ERROR)
RANK, JOB = int(sys.argv[1]), json.loads(sys.argv[2])
RANKS, TRAIN, INFER = 4, 4, 2  # ranks, and the widths of both cuts
BLOCK = 1 << 22  # elements of a slice that are made at once


def shapes(c):
    """Canonical tensors, by Hugging Face's names."""
    hidden, dim, inner = c['hidden_size'], c['head_dim'], c['intermediate_size']
    q, kv = c['num_attention_heads'] * dim, c['num_key_value_heads'] * dim
    of = {'model.embed_tokens.weight': (c['vocab_size'], hidden)}
    for layer in range(c['num_hidden_layers']):
        at = f'model.layers.{layer}.'
        of |= {
            at + 'self_attn.q_proj.weight': (q, hidden),
            at + 'self_attn.k_proj.weight': (kv, hidden),
            at + 'self_attn.v_proj.weight': (kv, hidden),
            at + 'self_attn.o_proj.weight': (hidden, q),
            at + 'mlp.gate_proj.weight': (inner, hidden),
            at + 'mlp.up_proj.weight': (inner, hidden),
            at + 'mlp.down_proj.weight': (hidden, inner),
            at + 'input_layernorm.weight': (hidden,),
            at + 'post_attention_layernorm.weight': (hidden,),
        }
    return of | {'model.norm.weight': (hidden,)}


CONFIG = JOB['config']
SHAPES = shapes(CONFIG)
NUMBERS = {name: number for number, name in enumerate(SHAPES)}


def dim_of(name):
    """Which dimension tensor parallelism cuts; None: none."""
    return None if name.endswith('norm.weight') else int('o_proj' in name or 'down_proj' in name)


def ranges(name, width, rank, rows=None):
    """(name, rows, columns) of a rank's part; rows: of these alone."""
    shape = SHAPES[name]
    begin, end = [0, 0], [shape[0], shape[1] if len(shape) > 1 else 1]
    dim = dim_of(name)
    if dim is not None:
        each = end[dim] // width
        begin[dim], end[dim] = each * rank, each * (rank + 1)
    if rows:
        begin[0], end[0] = rows
    return name, begin[0], end[0], begin[1], end[1]


def values(name, row, rows, column, columns):
    """A slice of the whole tensor, [rows - row, columns - column] of bf16: any bits."""
    width = SHAPES[name][1] if len(SHAPES[name]) > 1 else 1
    made = torch.arange(row * width, rows * width, dtype=torch.int32)
    made.mul_(-1640531535).add_(NUMBERS[name] * 7919)
    made.bitwise_xor_(made >> 15).mul_(739982445)
    return (made >> 16).to(torch.int16).view(torch.bfloat16).view(rows - row, width)[:, column:columns]


def each_block(tensor, boxes):
    """Rows of a tensor that is boxes stacked, and what they should be. A box without a name is padding, which nobody
    reads."""
    flat, at = tensor.view(tensor.shape[0], -1), 0
    for name, row, rows, column, columns in boxes:
        step = max(1, BLOCK // SHAPES[name][-1]) if name else rows
        for begin in range(row, rows, step) if name else ():
            end = min(rows, begin + step)
            yield flat[at + begin - row : at + end - row], name, begin, end, column, columns
        at += rows - row
    assert at == tensor.shape[0], f'{at} rows, and not {tensor.shape[0]}'


def fill(tensors, boxes):
    for name, tensor in tensors.items():
        tensor.zero_()
        for part, *which in each_block(tensor, boxes[name]):
            part.copy_(values(*which))


def check(what, tensors, boxes):
    assert set(tensors) == set(boxes), f'{what}: {set(tensors) ^ set(boxes)}'
    for name, tensor in tensors.items():
        for part, *which in each_block(tensor, boxes[name]):
            if not torch.equal(part.view(torch.int16), values(*which).view(torch.int16)):
                raise SystemExit(
                    f'{what}: rank {RANK}: {name}: rows from {which[1]} of {which[0]} differ from the whole tensor'
                )


def vllm_boxes(rank):
    boxes = {}
    for name in SHAPES:
        for kind, fused in (
            ('q_proj', 'qkv_proj'),
            ('k_proj', 'qkv_proj'),
            ('v_proj', 'qkv_proj'),
            ('gate_proj', 'gate_up_proj'),
            ('up_proj', 'gate_up_proj'),
        ):
            if kind in name:
                boxes.setdefault(name.replace(kind, fused), []).append(ranges(name, INFER, rank))
                break
        else:
            boxes[name] = [ranges(name, INFER, rank)]
    return boxes


MEGATRON = {
    'self_attn.o_proj.weight': 'self_attention.linear_proj.weight',
    'input_layernorm.weight': 'self_attention.linear_qkv.layer_norm_weight',
    'self_attn.qkv_proj.weight': 'self_attention.linear_qkv.weight',
    'post_attention_layernorm.weight': 'mlp.linear_fc1.layer_norm_weight',
    'mlp.gate_up_proj.weight': 'mlp.linear_fc1.weight',
    'mlp.down_proj.weight': 'mlp.linear_fc2.weight',
}


def megatron_name(name):
    """Of a tensor of vLLM's."""
    if name.startswith('model.layers.'):
        layer, rest = name.removeprefix('model.layers.').split('.', 1)
        return f'decoder.layers.{layer}.{MEGATRON[rest]}'
    return {
        'model.embed_tokens.weight': 'embedding.word_embeddings.weight',
        'model.norm.weight': 'decoder.final_layernorm.weight',
    }[name]


def megatron_boxes(width, rank):
    """qkv by groups of heads that share keys, the vocabulary padded to a multiple of 128 times the training width."""
    boxes = {}
    dim, groups = CONFIG['head_dim'], CONFIG['num_key_value_heads']
    heads = CONFIG['num_attention_heads'] // groups
    for name, (first, *more) in vllm_boxes(0).items():
        of = [ranges(box[0], width, rank) for box in (first, *more)]
        if 'qkv_proj' in name:
            mine = range(groups // width * rank, groups // width * (rank + 1))
            of = [
                ranges(box[0], width, rank, (group * count * dim, (group + 1) * count * dim))
                for group in mine
                for box, count in zip((first, *more), (heads, 1, 1))
            ]
        elif 'embed_tokens' in name:
            rows, padded = SHAPES[name][0], math.ceil(SHAPES[name][0] / (128 * TRAIN)) * 128 * TRAIN // width
            begin, end = min(rows, padded * rank), min(rows, padded * (rank + 1))
            of = [ranges(name, width, rank, (begin, end)), (None, 0, padded - (end - begin), 0, 0)]
        boxes[megatron_name(name)] = of
    return boxes


def room(boxes):
    """Touched memory for tensors that are boxes stacked."""
    made = {}
    for name, of in boxes.items():
        rows, columns = sum(box[2] - box[1] for box in of), of[0][4] - of[0][3]
        made[name] = torch.zeros((rows, columns) if columns > 1 else (rows,), dtype=torch.bfloat16)
    return made


class Treadle:
    """What is measured of it, and the memory that the other methods share with it."""

    def __init__(self):
        import treadle

        self.group = treadle.Group.torch()
        model = treadle.Model(JOB['model'])
        self.layouts = (
            treadle.Layout(model, f'megatron:tp={TRAIN}', RANKS),
            treadle.Layout(model, f'vllm:tp={INFER}', RANKS),
        )
        self.bytes = [self.layouts[1].window_bytes(rank) for rank in range(RANKS)]
        self.train_boxes, self.infer_boxes = megatron_boxes(TRAIN, RANK), vllm_boxes(RANK % INFER)
        self.train, self.infer = room(self.train_boxes), room(self.infer_boxes)
        fill(self.train, self.train_boxes)
        self.own = treadle.Switch(self.group, *self.layouts, train_tensors=self.train, infer_tensors=self.infer)
        self.windows = treadle.Switch(self.group, *self.layouts)
        for name, tensor in self.windows.train.torch().items():
            tensor.copy_(self.train[name])

    def memcpy(self):
        """The C library's, as many bytes as the destination has, from memory that was touched: in mode INFER the
        window."""
        for name, memory in self.windows.infer.items():
            ctypes.memmove(self.infer[name].data_ptr(), memory.address, memory.nbytes)


def deinterleave(tensor, heads, dim):
    """Groups of (heads queries, key, value): [q, k, v]."""
    return tensor.view(-1, heads + 2, dim, tensor.shape[-1]).split((heads, 1, 1), 1)


class AllGather:
    """Each tensor of Megatron's is gathered whole on every rank, and what vLLM's cut has of it is copied."""

    def __init__(self, t):
        self.t = t

    def whole(self, shard, dim):
        parts = [torch.empty_like(shard) for _ in range(TRAIN)]
        dist.all_gather(parts, shard)
        return torch.cat(parts, dim)

    def run(self):
        dim, heads, rank = (
            CONFIG['head_dim'],
            CONFIG['num_attention_heads'] // CONFIG['num_key_value_heads'],
            RANK % INFER,
        )
        for name, to in self.t.infer.items():
            shard = self.t.train[megatron_name(name)]
            if name.endswith('norm.weight'):
                to.copy_(shard)
                continue
            whole = self.whole(shard, dim_of(name))
            if 'qkv_proj' in name:
                mine = whole.chunk(INFER)[rank]
                to.copy_(torch.cat([part.reshape(-1, whole.shape[1]) for part in deinterleave(mine, heads, dim)]))
            elif 'gate_up_proj' in name:
                pairs = whole.view(TRAIN, 2, -1, whole.shape[1])[TRAIN // INFER * rank : TRAIN // INFER * (rank + 1)]
                to.view(2, TRAIN // INFER, -1, whole.shape[1]).copy_(pairs.transpose(0, 1))
            elif dim_of(name) == 0:
                to.copy_(whole[to.shape[0] * rank : to.shape[0] * (rank + 1)])
            else:
                to.copy_(whole[:, to.shape[1] * rank : to.shape[1] * (rank + 1)])


class FullTensor:
    """DTensors of Hugging Face's tensors; full_tensor() of each, and what vLLM's cut has of it is copied."""

    def __init__(self, t):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Replicate, Shard

        self.t = t
        mesh, boxes = init_device_mesh('cpu', (RANKS,)), {name: [ranges(name, RANKS, RANK)] for name in SHAPES}
        local = room(boxes)
        fill(local, boxes)
        self.tensors = {
            name: DTensor.from_local(
                tensor, mesh, [Replicate() if dim_of(name) is None else Shard(dim_of(name))], run_check=False
            )
            for name, tensor in local.items()
        }

    def run(self):
        for name, to in self.t.infer.items():
            at = 0
            for box, row, rows, column, columns in self.t.infer_boxes[name]:
                whole = self.tensors[box].full_tensor()
                to[at : at + rows - row].copy_(whole[row:rows, column:columns] if whole.dim() > 1 else whole)
                at += rows - row


class Nothing:
    """In place of torch.cuda.Stream."""

    def wait_stream(self, _other):
        pass


class Megatron:
    """Megatron-core's resharding over gloo, from TP4 to two replicas of TP2, in its own names and order of rows.

    What was replaced: torch.cuda.Stream and current_stream, which GlooCopyService makes and waits for, do nothing; the
    models are modules with the parameters of a GPTModel and the attributes that the planner reads
    (tensor_model_parallel, partition_dim, partition_stride, pg_collection), whose memory is that of the other methods
    where the sizes agree. The planner, the service, its sends, receives and copies are Megatron's. The plan is made
    before it is timed, as swap_model_weights keeps it."""

    def __init__(self, t):
        torch.cuda.Stream = Nothing
        torch.cuda.current_stream = lambda *_: Nothing()
        from megatron.core.resharding.refit import swap_model_weights

        self.swap = swap_model_weights
        groups = {
            members: dist.new_group(list(members))
            for members in ((0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 2), (1, 3))
        }
        mine = groups[(RANK,)]
        self.boxes = megatron_boxes(INFER, RANK % INFER)
        self.target = {megatron_name(name): tensor for name, tensor in t.infer.items()}
        embedding = 'embedding.word_embeddings.weight'
        self.target |= room({embedding: self.boxes[embedding]})  # padded: others than vLLM's
        self.source_model = self.model(t.train, tp=dist.group.WORLD, dp=mine, pp=mine)
        self.target_model = self.model(
            self.target, tp=groups[(0, 1) if RANK < 2 else (2, 3)], dp=groups[(RANK % 2, RANK % 2 + 2)], pp=mine
        )

    def model(self, tensors, **groups):
        model = torch.nn.Module()
        for name, tensor in tensors.items():
            *path, last = name.split('.')
            module = model
            for part in path:
                if part not in module._modules:
                    module.add_module(part, torch.nn.Module())
                module = module._modules[part]
            parameter = torch.nn.Parameter(tensor, requires_grad=False)
            if tensor.dim() > 1:
                parameter.tensor_model_parallel = True
                parameter.partition_dim = int('linear_proj' in name or 'linear_fc2' in name)
                parameter.partition_stride = 2 if 'linear_fc1' in name else 1
            module.register_parameter(last, parameter)
        model.config = types.SimpleNamespace(num_moe_experts=None)
        model.pg_collection = types.SimpleNamespace(ep=None, expt_tp=None, **groups)
        return model

    def run(self):
        self.swap(self.source_model, self.target_model, 'gloo')

    def check(self):
        for name, parameter in self.target_model.named_parameters():
            assert parameter.data_ptr() == self.target[name].data_ptr()
        check('Megatron', self.target, self.boxes)


def slowest(run):
    """Seconds from barrier to barrier."""
    dist.barrier()
    begin = time.perf_counter()
    run()
    dist.barrier()
    seconds = [None] * RANKS
    dist.all_gather_object(seconds, time.perf_counter() - begin)
    return max(seconds)


def say(words):
    if RANK == 0:
        print(f'{words}, load {os.getloadavg()[0]:.1f}', file=sys.stderr, flush=True)


def addresses(switches):
    """Do tensors that were made of the infer window before the first switch have each version's weights, and does the
    library still say that they lie there? With windows and with own tensors, of a small model."""
    import treadle

    model = treadle.Model(JOB['small_model'])
    layouts = treadle.Layout(model, f'megatron:tp={TRAIN}', RANKS), treadle.Layout(model, f'vllm:tp={INFER}', RANKS)
    own = {s.name: torch.zeros(s.shape, dtype=torch.bfloat16) for s in layouts[1].storages(RANK)}
    same = True
    for given in ({}, {'infer_tensors': own, 'keep': 'host'}):
        with treadle.Switch(treadle.Group.torch(), *layouts, **given) as sw:
            train, infer = sw.train.torch(), own if given else sw.infer.torch()
            before = {name: tensor.data_ptr() for name, tensor in infer.items()}
            for number in range(1, switches + 1):
                for tensor in train.values():
                    tensor.fill_(number)
                sw.to_infer()
                same &= all(bool((tensor == number).all()) for tensor in infer.values())
                sw.to_train()
            sw._windows.clear()  # asked again
            same &= before == {name: memory.address for name, memory in sw.infer.items()}
    everywhere = [None] * RANKS
    dist.all_gather_object(everywhere, same)
    return all(everywhere)


def prepare(t):
    """The methods: name to (what is timed, its check, what comes after it and is not timed)."""

    def written():
        check('what was written', t.infer, t.infer_boxes)

    gather, full = AllGather(t), FullTensor(t)
    methods = {
        'windows': (t.windows.to_infer, lambda: check('windows', t.windows.infer.torch(), t.infer_boxes), None),
        'memcpy': (t.memcpy, written, t.windows.to_train),
        'own': (t.own.to_infer, written, t.own.to_train),
        'all_gather': (gather.run, written, None),
        'full_tensor': (full.run, written, None),
    }
    try:
        megatron, reason = Megatron(t), None
        methods['megatron'] = megatron.run, megatron.check, None
    except ImportError as error:
        reason = f'{type(error).__name__}: {error}'
    return methods, reason


def main():
    torch.set_num_threads(1)
    dist.init_process_group(
        'gloo',
        init_method=f'file://{JOB["folder"]}/meet',
        rank=RANK,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=600),
    )
    say('ranks: filling the tensors')
    t = Treadle()
    methods, reason = prepare(t)
    seconds, own_stats = {name: [] for name in methods}, {}
    for number in range(JOB['rounds'] + 1):  # the first one warms up, and is checked
        for name, (run, checked, after) in methods.items():
            if not number and name != 'windows' and name != 'memcpy':
                for tensor in t.infer.values():
                    tensor.fill_(-1)
            took = slowest(run)
            if not number:
                checked()
            else:
                seconds[name].append(took)
            if name == 'own':
                own_stats = t.own.stats
            if after:
                after()
            say(f'round {number} of {JOB["rounds"]}: {name} {sum(t.bytes) / took / 1e9:.2f} GB/s')
    t.own.close()
    t.windows.close()
    say('addresses of a small model')
    same = addresses(100)
    if RANK == 0:
        print(
            json.dumps(
                {
                    'bytes': sum(t.bytes),
                    'seconds': seconds,
                    'megatron_left_out': reason,
                    'address_stable': same,
                    'own_stats': own_stats,
                }
            )
        )
    dist.barrier()
    dist.destroy_process_group()


main()
