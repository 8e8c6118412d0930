#!/usr/bin/env python3
"""A switch beside what frameworks do with torch, all of it on one device: Llama-3.1-8B's shapes, weights made up.

    bench/switch_torch.py [--device cuda:0] [--layers 8] [--scale 1] [--rounds 5] [--bucket-mib 512]
                          [--parts threads,processes] [--json]

It needs torch, and the package treadle (PYTHONPATH). --scale divides widths and vocabulary, for small machines. On the
cpu it shows that it works; bars are those of a GPU.

threads    ranks as threads of this process, megatron:tp=4 to vllm:tp=4, and megatron:tp=2 to vllm:tp=1. Each round,
           from barrier to barrier:
             switch         Switch.to_infer
             cat_and_slice  on each rank: every full tensor by torch.cat of all shards, and its own slice of that into
                            its parameter
             copy           a flat copy of as many bytes as the rank's infer window has
             back           Switch.to_train
           Bars: 3.5 times cat_and_slice (tp=4), 0.7 of copy both ways (tp=2).
processes  two of them, a trainer with Hugging Face's tensors and an engine with fused parameters of its own. Each
           round:
             update   Switch.update
             buckets  the trainer packs tensors into a flat bucket and sends its handle (CUDA IPC; on the cpu shared
                      memory), the engine copies tensor by tensor into its parameters
           Bar: 1.5 times buckets.

Two rounds warm up; ratios are medians over the others of those of a round. What torch has written is compared with what
the switch has, bit by bit. A missed bar is printed; the exit status is 1 only when something fails or differs. --json:
one object on one line."""

import argparse
import functools
import gc
import json
import os
import statistics
import sys
import tempfile
import threading
import time

import torch
import torch.multiprocessing

import treadle

WARM_UP = 2
LIMIT = 120  # seconds, of each wait for another rank
BLOCK = 256 << 20  # bytes of a flat copy at a time


def config_of(options):
    return {
        'model_type': 'llama',
        'torch_dtype': 'bfloat16',
        'vocab_size': 128256 // options.scale,
        'hidden_size': 4096 // options.scale,
        'intermediate_size': 14336 // options.scale,
        'num_hidden_layers': options.layers,
        'num_attention_heads': 32,
        'num_key_value_heads': 8,
        'head_dim': 128 // options.scale,
        'tie_word_embeddings': False,
    }


def open_model(options):
    with tempfile.TemporaryDirectory() as folder:
        with open(f'{folder}/config.json', 'w', encoding='ascii') as file:
            json.dump(config_of(options), file)
        return treadle.Model(f'{folder}/config.json')


def finish(device):
    if torch.device(device).type == 'cuda':
        torch.cuda.synchronize(device)


def timed(barrier, device, step):
    """Seconds from barrier to barrier, the step and its work on the device between them."""
    finish(device)
    barrier()
    begin = time.perf_counter()
    step()
    finish(device)
    barrier()
    return time.perf_counter() - begin


def give_back(device):
    """Memory of the device that torch keeps and does not use: pools and other processes need it."""
    gc.collect()
    if torch.device(device).type == 'cuda':
        torch.cuda.empty_cache()


def compare(what, found, wanted):
    """Bits of two dicts of tensors."""
    if set(found) != set(wanted):
        raise SystemExit(f'{what}: other names than those of the switch: {sorted(set(found) ^ set(wanted))[:4]}')
    for name, tensor in found.items():
        if not torch.equal(tensor.view(torch.int16), wanted[name].view(torch.int16)):
            raise SystemExit(f'{what}: {name} differs from what the switch has')


# ---- Full tensors, and slices of them ----

LAYER = {
    'self_attn.qkv_proj': 'self_attention.linear_qkv',
    'self_attn.o_proj': 'self_attention.linear_proj',
    'mlp.gate_up_proj': 'mlp.linear_fc1',
    'mlp.down_proj': 'mlp.linear_fc2',
}
NORMS = {
    'input_layernorm.weight': 'self_attention.linear_qkv.layer_norm_weight',
    'post_attention_layernorm.weight': 'mlp.linear_fc1.layer_norm_weight',
}
OUTSIDE = {
    'model.embed_tokens.weight': 'embedding.word_embeddings.weight',
    'lm_head.weight': 'output_layer.weight',
    'model.norm.weight': 'decoder.final_layernorm.weight',
}


def megatron_name(name):
    """Of a tensor of vLLM's."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    layer, rest = name.removeprefix('model.layers.').split('.', 1)
    return f'decoder.layers.{layer}.' + (
        NORMS[rest] if rest in NORMS else LAYER[rest.removesuffix('.weight')] + '.weight'
    )


def part(tensor, dim, at, of):
    """Number `at` of `of` equal parts along a dimension."""
    each = tensor.shape[dim] // of
    return tensor.narrow(dim, at * each, each)


def take_qkv(config, shards, param, at, of):
    """Megatron has queries, key and value of each group of heads together, vLLM all queries, then keys, then values."""
    groups, dim = config['num_key_value_heads'], config['head_dim']
    each = config['num_attention_heads'] // groups
    full = part(torch.cat(shards).view(groups, each + 2, dim, -1), 0, at, of)
    row = 0
    for heads in (full[:, :each], full[:, each : each + 1], full[:, each + 1 :]):
        rows = heads.shape[0] * heads.shape[1] * dim
        param[row : row + rows].view(heads.shape).copy_(heads)
        row += rows


def take_gate_up(config, shards, param, at, of):
    full = torch.cat([shard.view(2, -1, shard.shape[1]) for shard in shards], dim=1)
    param.view(2, -1, param.shape[1]).copy_(part(full, 1, at, of))


def take_rows(config, shards, param, at, of):
    """Both pad the vocabulary, each in its own way."""
    rows = min(param.shape[0], config['vocab_size'] - at * param.shape[0])
    param[:rows].copy_(torch.cat(shards)[at * param.shape[0] : at * param.shape[0] + rows])


def take_columns(config, shards, param, at, of):
    param.copy_(part(torch.cat(shards, dim=1), 1, at, of))


def take_whole(config, shards, param, at, of):
    param.copy_(shards[0])


HOW = {
    'qkv_proj': take_qkv,
    'gate_up_proj': take_gate_up,
    'embed_tokens': take_rows,
    'lm_head': take_rows,
    'o_proj': take_columns,
    'down_proj': take_columns,
}


def cat_and_slice(config, shards, params, at, of):
    """shards: by rank, Megatron's tensors. Into params, part `at` of `of` of vLLM's."""
    for name, param in params.items():
        how = HOW.get(name.split('.')[-2], take_whole)
        how(config, [shard[megatron_name(name)] for shard in shards], param, at, of)


# ---- Ranks as threads ----


class Flat:
    """Copies of as many bytes, a block at a time."""

    def __init__(self, count, device):
        self.count = count
        self.blocks = [torch.zeros(min(count, BLOCK), dtype=torch.uint8, device=device) for _ in range(2)]

    def copy(self):
        for at in range(0, self.count, BLOCK):
            count = min(BLOCK, self.count - at)
            self.blocks[1][:count].copy_(self.blocks[0][:count])


class Threads:
    """What the ranks of a pair share."""

    def __init__(self, options, train, infer):
        self.options, self.config, self.train, self.infer = options, config_of(options), train, infer
        self.name = f'bench{os.getpid()}x{train}x{infer}'
        self.barrier = threading.Barrier(train)
        self.shards = [None] * train
        self.bytes = [0] * train
        self.failures = []
        self.seconds = {step: [] for step in ('switch', 'cat_and_slice', 'copy', 'back')}

    def layouts(self, model):
        return [treadle.Layout(model, text, self.train) for text in self.texts()]

    def texts(self):
        return f'megatron:tp={self.train}', f'vllm:tp={self.infer}'

    def note(self, rank, step, seconds):
        if rank == 0:
            self.seconds[step].append(seconds)

    def run_rank(self, rank, layouts):
        device = self.options.device
        time_step = functools.partial(timed, lambda: self.barrier.wait(LIMIT), device)
        group = treadle.Group.join(self.name, rank, self.train, timeout=LIMIT)
        with treadle.Switch(group, *layouts, device=device, timeout=LIMIT) as sw:
            sw.load('random')
            self.shards[rank] = {str(name): tensor.clone() for name, tensor in sw.train.torch().items()}
            self.bytes[rank] = sw.infer.nbytes
            flat = Flat(sw.infer.nbytes, device)
            params = None
            for _ in range(WARM_UP + self.options.rounds):
                self.note(rank, 'switch', time_step(sw.to_infer))
                wanted = {str(name): tensor for name, tensor in sw.infer.torch().items()}
                first = params is None
                if first:
                    params = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
                step = functools.partial(cat_and_slice, self.config, self.shards, params, rank % self.infer, self.infer)
                self.note(rank, 'cat_and_slice', time_step(step))
                if first:
                    compare(f'cat and slice, rank {rank} of {self.train}', params, wanted)
                del wanted
                self.note(rank, 'copy', time_step(flat.copy))
                self.note(rank, 'back', time_step(sw.to_train))
            finish(device)
            self.barrier.wait(LIMIT)

    def guard(self, rank, layouts):
        try:
            self.run_rank(rank, layouts)
        except BaseException as error:  # noqa: BLE001: the others wait for this one
            if not isinstance(error, threading.BrokenBarrierError):
                self.failures.append(f'rank {rank}: {error}')
            self.barrier.abort()

    def run(self):
        layouts = self.layouts(open_model(self.options))
        threads = [threading.Thread(target=self.guard, args=(rank, layouts)) for rank in range(self.train)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures or self.barrier.broken:
            raise SystemExit('; '.join(self.failures) or 'a rank did not come to a barrier')
        train, infer = self.texts()
        return {
            'train': train,
            'infer': infer,
            'ranks': self.train,
            'infer_bytes': sum(self.bytes),
            'seconds': medians(self.seconds),
            'over_cat_and_slice': ratio(self.seconds, 'cat_and_slice', 'switch'),
            'over_copy': ratio(self.seconds, 'copy', 'switch'),
            'back_over_copy': ratio(self.seconds, 'copy', 'back'),
        }


def medians(seconds):
    return {step: round(statistics.median(of[WARM_UP:]), 6) for step, of in seconds.items()}


def ratio(seconds, other, ours):
    return round(statistics.median(b / a for a, b in zip(seconds[ours][WARM_UP:], seconds[other][WARM_UP:])), 3)


# ---- Two processes ----

FUSED = {
    'q_proj': ('qkv_proj', 0),
    'k_proj': ('qkv_proj', 1),
    'v_proj': ('qkv_proj', 2),
    'gate_proj': ('gate_up_proj', 0),
    'up_proj': ('gate_up_proj', 1),
}


def rows_of(config):
    """By fused parameter, the rows of what it is made of."""
    q, kv = config['num_attention_heads'] * config['head_dim'], config['num_key_value_heads'] * config['head_dim']
    return {'qkv_proj': (q, kv, kv), 'gate_up_proj': (config['intermediate_size'],) * 2}


def buckets_of(tensors, most):
    """Lists of names; one tensor at least is in each."""
    lists, count = [], 0
    for name, tensor in tensors.items():
        if not lists or count + tensor.nbytes > most:
            lists.append([])
            count = 0
        lists[-1].append(name)
        count += tensor.nbytes
    return lists


class Trainer:
    def __init__(self, options, sw, pipe):
        self.pipe, self.device = pipe, options.device
        self.tensors = {str(name): tensor for name, tensor in sw.train.torch().items()}
        self.lists = buckets_of(self.tensors, options.bucket_mib << 20)
        most = max(sum(self.tensors[name].numel() for name in names) for names in self.lists)
        self.bucket = torch.empty(most, dtype=torch.bfloat16, device=options.device)
        if not self.bucket.is_cuda:
            self.bucket.share_memory_()

    def move(self):
        for names in self.lists:
            of = [self.tensors[name] for name in names]
            count = sum(tensor.numel() for tensor in of)
            torch.cat([tensor.view(-1) for tensor in of], out=self.bucket[:count])
            finish(self.device)
            self.pipe.send((self.bucket, [(name, tensor.shape) for name, tensor in zip(names, of)]))
            self.pipe.recv()  # it has been read
        self.pipe.send(None)

    def check(self):
        """The engine does."""


class Engine:
    def __init__(self, options, sw, pipe):
        self.pipe, self.device = pipe, options.device
        self.rows = rows_of(config_of(options))
        self.wanted = {str(name): tensor for name, tensor in sw.infer.torch().items()}
        self.params = {name: torch.zeros_like(tensor) for name, tensor in self.wanted.items()}

    def place_of(self, name, rows):
        """Where a tensor of Hugging Face's lies in the parameters."""
        kind = name.split('.')[-2]
        if kind not in FUSED:
            return self.params[name][:rows]
        fused, number = FUSED[kind]
        begin = sum(self.rows[fused][:number])
        return self.params[name.replace(kind, fused)][begin : begin + rows]

    def move(self):
        while (message := self.pipe.recv()) is not None:
            bucket, of = message
            at = 0
            for name, shape in of:
                count = shape.numel()
                self.place_of(name, shape[0]).copy_(bucket[at : at + count].view(shape))
                at += count
            finish(self.device)
            del bucket, message
            self.pipe.send(True)

    def check(self):
        compare('buckets', self.params, self.wanted)


def run_process(rank, options, name, pipe, answer):
    """Rank 0 is the trainer and answers, rank 1 the engine."""
    model = open_model(options)
    texts = 'hf:root=0', 'vllm:tp=1,on=1'
    layouts = [treadle.Layout(model, text, 2) for text in texts]
    group = treadle.Group.join(name, rank, 2, timeout=LIMIT)
    time_step = functools.partial(timed, group.barrier, options.device)
    seconds = {'update': [], 'buckets': []}
    with treadle.Switch(group, *layouts, device=options.device, timeout=LIMIT) as sw:
        if rank == 0:
            sw.load('random')
        sw.to_infer()
        way = (Trainer, Engine)[rank](options, sw, pipe)
        for _ in range(WARM_UP + options.rounds):
            seconds['update'].append(time_step(sw.update))
            seconds['buckets'].append(time_step(way.move))
            way.check()
        count = int.from_bytes(group.gather(sw.infer.nbytes.to_bytes(8, 'little'))[1], 'little')
    if rank == 0:
        answer.send(
            {
                'train': texts[0],
                'infer': texts[1],
                'ranks': 2,
                'infer_bytes': count,
                'seconds': medians(seconds),
                'over_buckets': ratio(seconds, 'buckets', 'update'),
            }
        )


def run_processes(options):
    context = torch.multiprocessing.get_context('spawn')
    (pipes, answer, theirs), name = (context.Pipe(), *context.Pipe(duplex=False)), f'bench{os.getpid()}p'
    processes = [
        context.Process(target=run_process, args=(rank, options, name, pipes[rank], theirs)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for pipe in (*pipes, theirs):  # so that the end of a process is seen by the other
        pipe.close()
    try:
        said = answer.recv()
    except EOFError:
        said = None
    for process in processes:
        process.join()
    if said is None or any(process.exitcode for process in processes):
        raise SystemExit(f'the two processes ended with {[process.exitcode for process in processes]}')
    return said


# ---- All of it ----


def bar(words, value, least, judged):
    return f'  {words:42} {value:8.2f}' + (
        f'   bar {least} {"met" if value >= least else "MISSED"}' if judged and least else ''
    )


def lines_of(result, judged):
    yield (
        f"{result['train']} to {result['infer']}, {result['ranks']} ranks, "
        f"{result['infer_bytes'] / 1e9:.2f} GB of infer bytes"
    )
    for step, seconds in result['seconds'].items():
        yield f'  {step:42} {seconds * 1e3:8.1f} ms'
    bars = {
        'over_cat_and_slice': 3.5 if result['ranks'] == 4 else 0,
        'over_copy': 0.7 if result['ranks'] == 2 else 0,
        'back_over_copy': 0.7 if result['ranks'] == 2 else 0,
        'over_buckets': 1.5,
    }
    for key, least in bars.items():
        if key in result:
            yield bar(key, result[key], least, judged)


def summary(results):
    words = {'over_cat_and_slice': 'times cat and slice', 'over_buckets': 'times buckets'}
    return ', '.join(
        f"{result['train']} to {result['infer']} {result[key]:.2f} {of}"
        for result in results
        for key, of in words.items()
        if key in result
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--device', default='cuda:0')
    parser.add_argument('--layers', type=int, default=8)
    parser.add_argument('--scale', type=int, default=1)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--bucket-mib', type=int, default=512)
    parser.add_argument('--parts', default='threads,processes')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    if strange := set(options.parts.split(',')) - {'threads', 'processes'}:
        parser.error(f'--parts has {min(strange)}: there are threads, processes')
    if options.device == 'cuda':
        options.device = 'cuda:0'
    results = []
    if 'threads' in options.parts:
        for train, infer in ((4, 4), (2, 1)):
            results.append(Threads(options, train, infer).run())
            give_back(options.device)
    if 'processes' in options.parts:
        results.append(run_processes(options))
    if options.json:
        print(
            json.dumps(
                {
                    'device': options.device,
                    'layers': options.layers,
                    'scale': options.scale,
                    'summary': summary(results),
                    'results': results,
                }
            )
        )
        return
    print(
        f'torch {torch.__version__}, {options.device}, {options.layers} layers, scale {options.scale}, '
        f'medians of {options.rounds} rounds\n'
    )
    for result in results:
        print('\n'.join(lines_of(result, options.device != 'cpu' and options.scale == 1)) + '\n')


if __name__ == '__main__':
    sys.exit(main())
