#!/usr/bin/env python3
"""An update of an engine by trainers that share a model with FSDP2, beside two ways that frameworks go. Trainers and
the engine's workers are processes.

    bench/update_torch.py [--trainers 2] [--workers 2] [--layers 16] [--rounds 5] [--bucket-mib 512] [--json]

It needs torch and transformers, and the package treadle (PYTHONPATH). A Llama of bf16, 540 MB with 16 layers; the
workers have vLLM's fused parameters, tensor parallel. In each round, every time in another order:

  treadle    Switch.next_version: shard to shard, into the workers' own parameters
  broadcast  for each tensor: the trainers gather it, the first one broadcasts it (gloo) to the workers, each copies its
             part of it
  buckets    for each bucket: the trainers gather its tensors, the first one flattens them into shared memory, and each
             worker copies its parts from there, as SGLang's update_weights_from_tensor has it with
             FlattenedTensorBucket. The bucket's memory and a worker's buffer for broadcasts are made once.

Ratios are medians over the rounds of those of a round; a first round warms up. After each way, all parameters are
compared bit for bit with a direct cut of the whole tensors. kept: by what a trainer's resident memory grew when the way
was made and had run once. peak: by what it grows at most during an update, beyond that.
Bars: 5 times as fast as each; kept and peak of a trainer together less than those of buckets by a full copy. Exit
status 1 when something fails or differs."""

import argparse
import contextlib
import io
import json
import os
import pickle
import socket
import statistics
import sys
import tempfile
import time
from multiprocessing.reduction import ForkingPickler

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from switch_torch import FUSED, rows_of

import treadle

WAYS = ('treadle', 'broadcast', 'buckets')
LIMIT = 300


def config_of(options):
    return {
        'model_type': 'llama',
        'vocab_size': 32000,
        'hidden_size': 1024,
        'intermediate_size': 2816,
        'num_hidden_layers': options.layers,
        'num_attention_heads': 16,
        'num_key_value_heads': 8,
        'head_dim': 64,
        'tie_word_embeddings': False,
        'dtype': 'bfloat16',
    }


# ---- What a worker keeps of a whole tensor ----

class Parameters:
    """A worker's, by vLLM's names; load() is what an engine's weight loader does with a whole tensor."""

    def __init__(self, config, storages, at, of):
        self.at, self.of = at, of
        self.rows = {name: [rows // of for rows in whole] for name, whole in rows_of(config).items()}
        self.tensors = {storage.name: torch.zeros(storage.shape, dtype=torch.bfloat16) for storage in storages}

    def load(self, name, whole):
        kind = name.split('.')[-2]
        if kind in FUSED:
            fused, number = FUSED[kind]
            begin, rows = sum(self.rows[fused][:number]), self.rows[fused][number]
            place, part = (
                self.tensors[name.replace(kind, fused)][begin : begin + rows],
                whole[self.at * rows : (self.at + 1) * rows],
            )
        elif kind in ('o_proj', 'down_proj'):
            place = self.tensors[name]
            part = whole[:, self.at * place.shape[1] : (self.at + 1) * place.shape[1]]
        elif kind in ('embed_tokens', 'lm_head'):
            place = self.tensors[name]
            part = whole[self.at * place.shape[0] : (self.at + 1) * place.shape[0]]
        else:
            place, part = self.tensors[name], whole
        place.copy_(part)


# ---- Ways ----


def whole_of(tensor):
    return tensor.full_tensor() if hasattr(tensor, 'full_tensor') else tensor


class Treadle:
    def __init__(self, options, rank, net, params, layouts, group):
        train, infer = layouts
        self.switch = treadle.Switch(
            group, train, infer, train_tensors=net, infer_tensors=params.tensors if params else None, timeout=LIMIT
        )

    def move(self):
        self.switch.next_version()


class Broadcast:
    def __init__(self, options, rank, net, params, shapes, receivers):
        self.rank, self.net, self.params, self.shapes, self.receivers = rank, net, params, shapes, receivers
        self.buffer = torch.zeros(max(shape.numel() for _, shape in shapes), dtype=torch.bfloat16) if params else None

    def move(self):
        if self.net is not None:
            for _, tensor in self.net.named_parameters():
                whole = whole_of(tensor.detach())
                if self.rank == 0:
                    dist.broadcast(whole, 0, group=self.receivers)
            return
        for name, shape in self.shapes:
            whole = self.buffer[: shape.numel()].view(shape)
            dist.broadcast(whole, 0, group=self.receivers)
            self.params.load(name, whole)


class Buckets:
    """The bucket goes by a handle of shared memory, sent once."""

    def __init__(self, options, rank, net, params, shapes, receivers):
        self.rank, self.net, self.params, self.receivers = rank, net, params, receivers
        self.lists, count = [], 0
        for name, shape in shapes:
            if not self.lists or count + 2 * shape.numel() > options.bucket_mib << 20:
                self.lists.append([])
                count = 0
            self.lists[-1].append((name, shape))
            count += 2 * shape.numel()
        handle = [None]
        if rank == 0:
            most = max(sum(shape.numel() for _, shape in of) for of in self.lists)
            self.bucket = torch.zeros(most, dtype=torch.bfloat16).share_memory_()
            handle = [pickle_of(self.bucket)]
        if rank == 0 or params:
            dist.broadcast_object_list(handle, 0, group=receivers)
        if params:
            self.bucket = pickle.loads(handle[0])  # noqa: S301: of this bench's own process

    def move(self):
        named = dict(self.net.named_parameters()) if self.net is not None else {}
        for of in self.lists:
            gathered = [whole_of(named[name].detach()) for name, _ in of] if named else []
            if self.rank == 0:
                torch.cat(
                    [whole.flatten() for whole in gathered], out=self.bucket[: sum(whole.numel() for whole in gathered)]
                )
            if self.rank > 0 and not self.params:
                continue
            dist.barrier(group=self.receivers)  # it is filled
            at = 0
            for name, shape in of if self.params else ():
                self.params.load(name, self.bucket[at : at + shape.numel()].view(shape))
                at += shape.numel()
            dist.barrier(group=self.receivers)  # it has been read


def pickle_of(value):
    made = io.BytesIO()
    ForkingPickler(made).dump(value)
    return made.getvalue()


# ---- Processes ----


def resident(key):
    with open('/proc/self/status', encoding='ascii') as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


def measured(step):
    """Seconds from barrier to barrier, and what resident memory grew by at most."""
    with open('/proc/self/clear_refs', 'w', encoding='ascii') as file:
        file.write('5')  # the peak begins anew
    before = resident('VmRSS')
    dist.barrier()
    begin = time.perf_counter()
    step()
    dist.barrier()
    return time.perf_counter() - begin, max(0, resident('VmHWM') - before)


def shard(net, options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh('cpu', (options.trainers,))
    for layer in net.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def make_net(config, seed=1):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(seed)
    net = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.bfloat16)
    return net.requires_grad_(False)


def run(rank, options, port, answer):
    torch.set_num_threads(1)
    mp.set_sharing_strategy('file_system')  # handles between processes that did not start each other
    os.environ.update(
        MASTER_ADDR='127.0.0.1',
        MASTER_PORT=str(port),
        RANK=str(rank),
        WORLD_SIZE=str(options.trainers + options.workers),
    )
    dist.init_process_group('gloo')
    receivers = dist.new_group([0, *range(options.trainers, options.trainers + options.workers)])
    config, trains = config_of(options), rank < options.trainers
    with opened(config) as model:
        net = make_net(config)
        shapes = [(name, tensor.shape) for name, tensor in net.named_parameters()]
        infer = treadle.Layout(
            model,
            f'vllm:tp={options.workers},on={options.trainers}-{options.trainers + options.workers - 1}',
            dist.get_world_size(),
        )
        params = (
            [Parameters(config, infer.storages(rank), rank - options.trainers, options.workers) for _ in WAYS]
            if not trains
            else [None] * len(WAYS)
        )
        expected = None
        if trains:
            net = shard(net, options)
        else:
            expected, net = Parameters(config, infer.storages(rank), rank - options.trainers, options.workers), None
            for name, whole in make_net(config).named_parameters():
                expected.load(name, whole)
        group = treadle.Group.torch(timeout=LIMIT)
        train = treadle.Layout.of(model, net, group)
        makes = {
            'treadle': lambda: Treadle(options, rank, net, params[0], (train, infer), group),
            'broadcast': lambda: Broadcast(options, rank, net, params[1], shapes, receivers),
            'buckets': lambda: Buckets(options, rank, net, params[2], shapes, receivers),
        }
        ways, kept = {}, {}
        for way in WAYS:
            before = resident('VmRSS')
            ways[way] = makes[way]()
            ways[way].move()
            kept[way] = max(0, resident('VmRSS') - before)
        seconds, peaks = {way: [] for way in WAYS}, dict.fromkeys(WAYS, 0)
        for turn in range(1 + options.rounds):
            for number in range(len(WAYS)):
                way = WAYS[(turn + number) % len(WAYS)]
                params_of = params[WAYS.index(way)]
                if params_of:
                    for tensor in params_of.tensors.values():
                        tensor.zero_()
                took, grew = measured(ways[way].move)
                if turn:
                    seconds[way].append(took)
                    peaks[way] = max(peaks[way], grew)
                for name, tensor in params_of.tensors.items() if params_of else ():
                    if not torch.equal(tensor.view(torch.int16), expected.tensors[name].view(torch.int16)):
                        raise SystemExit(f'{way}, rank {rank}: {name} differs from a direct cut of the whole tensor')
        memory = [None] * dist.get_world_size()
        dist.all_gather_object(memory, {way: (kept[way], peaks[way]) for way in WAYS})
        if rank == 0:
            answer.put(
                {
                    'bytes': sum(2 * shape.numel() for _, shape in shapes),
                    'seconds': {way: round(statistics.median(of), 4) for way, of in seconds.items()},
                    'over': {
                        way: round(statistics.median(b / a for a, b in zip(seconds['treadle'], seconds[way])), 2)
                        for way in WAYS[1:]
                    },
                    'trainer_kept': {way: max(one[way][0] for one in memory[: options.trainers]) for way in WAYS},
                    'trainer_peak': {way: max(one[way][1] for one in memory[: options.trainers]) for way in WAYS},
                }
            )
        ways['treadle'].switch.close()
        dist.barrier()
        dist.destroy_process_group()


@contextlib.contextmanager
def opened(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(f'{folder}/config.json', 'w', encoding='ascii') as file:
            json.dump(config, file)
        yield treadle.Model(f'{folder}/config.json')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (('trainers', 2), ('workers', 2), ('layers', 16), ('rounds', 5), ('bucket-mib', 512)):
        parser.add_argument(f'--{name}', type=int, default=default)
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    with socket.socket() as made:
        made.bind(('127.0.0.1', 0))
        port = made.getsockname()[1]
    context = mp.get_context('spawn')
    answer = context.Queue()
    processes = [
        context.Process(target=run, args=(rank, options, port, answer))
        for rank in range(options.trainers + options.workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit(f'processes ended with {[process.exitcode for process in processes]}')
    found = answer.get()
    if options.json:
        print(json.dumps(found))
        return
    print(f'{found["bytes"] / 1e6:.0f} MB, {options.trainers} trainers, {options.workers} workers')
    for way in WAYS:
        times = f'{found["over"][way]:6.2f} times treadle' if way in found['over'] else ''
        kept, peak = (found[key][way] / 1e6 for key in ('trainer_kept', 'trainer_peak'))
        print(
            f'{way:<10} {found["seconds"][way]:8.3f} s  a trainer keeps {kept:5.0f} MB and has {peak:5.0f} MB '
            f'more at the peak  {times}'
        )
    missed = [way for way, times in found['over'].items() if times < 5]
    if missed:
        print('missed: 5 times as fast as', ', '.join(missed))
    memory = {way: found['trainer_kept'][way] + found['trainer_peak'][way] for way in WAYS}
    if memory['treadle'] > memory['buckets'] - found['bytes']:
        print(
            f'missed: a full copy less than buckets: {memory["treadle"] / 1e6:.0f} and {memory["buckets"] / 1e6:.0f} MB'
        )


if __name__ == '__main__':
    main()
