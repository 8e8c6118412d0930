"""What bench/python measures in one process: python_alone.py plan | placements | attach | reader ... Each prints one
JSON object."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

import treadle


def resident():
    """MiB of this process: (VmRSS, RssFile)."""
    with open('/proc/self/status', encoding='ascii') as file:
        of = dict(line.split(':', 1) for line in file)
    return [int(of[key].split()[0]) / 1024 for key in ('VmRSS', 'RssFile')]


def plan(config, command, rounds):
    """plan_seconds of treadle.plan over that of the command, by turns: the median of each turn's ratio, and medians of
    both."""
    words = [
        command,
        'plan',
        '--model',
        config,
        '--from',
        'megatron:tp=8,pp=4',
        '--to',
        'vllm:tp=8',
        '--ranks',
        '64',
        '--json',
    ]
    model, package, of_command = treadle.Model(config), [], []
    for _ in range(int(rounds)):
        here = treadle.plan(model, 'megatron:tp=8,pp=4', 'vllm:tp=8', 64)
        there = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
        package.append(here['plan_seconds'])
        of_command.append(there['plan_seconds'])
        assert (here['moved_bytes'], here['peak_bytes']) == (there['moved_bytes'], there['peak_bytes'])
    ratios = [one / other for one, other in zip(package, of_command)]
    return {
        'ratio': round(statistics.median(ratios), 3),
        'package_ms': round(statistics.median(package) * 1e3, 1),
        'command_ms': round(statistics.median(of_command) * 1e3, 1),
    }


def describe(model):
    """What FSDP2 over TP's placements say of Llama on a mesh of 64 x 32 x 8 ranks, as Layout.of has it from
    DTensors."""
    from treadle import _abi, _placements

    none, shard, fully = (_abi.TREADLE_REPLICATE, 0, 0), _abi.TREADLE_SHARD, _abi.TREADLE_FULLY_SHARD
    tensors = []
    for tensor in model.tensors:
        if tensor.name.endswith('norm.weight'):
            placements = none, (shard, 0, 0), none
        elif 'o_proj' in tensor.name or 'down_proj' in tensor.name:
            placements = none, (shard, 0, 0), (shard, 1, 0)
        else:
            placements = none, (fully, 0, 0), (shard, 0, 0)
        tensors.append(_placements.Placed(tensor.name, tensor.name, tensor.dtype, tensor.shape, 0, placements))
    return _placements.Description([((64, 32, 8), tuple(range(16384)))], tensors)


def placements(config, rounds):
    """From the description to one rank's plan; of each rank the best, of the ranks the worst."""
    from treadle import _placements

    model = treadle.Model(config)
    description, took = describe(model), {0: [], 8195: [], 16383: []}
    for _ in range(int(rounds)):
        for rank, of in took.items():
            begin = time.perf_counter()
            train = treadle.Layout.__new__(treadle.Layout)
            train._take(model, _placements.make(model, 16384, description))
            layout = time.perf_counter() - begin
            made = treadle.plan(model, train, 'vllm:tp=8', 16384, rank=rank)
            of.append((time.perf_counter() - begin, layout))
            assert made['by_rank'][0]['moved_bytes'] == made['by_rank'][0]['lower_bound_bytes'] > 0
    seconds, layout = max(min(of) for of in took.values())
    median = statistics.median(one for of in took.values() for one, _ in of)
    return {
        'ms': round(seconds * 1e3, 1),
        'of_it_layout_ms': round(layout * 1e3, 1),
        'median_ms': round(median * 1e3, 1),
    }


def reader(handle, rounds):
    """Attaches, tells of it, holds, and waits to be killed."""
    took, grown = [], []
    for number in range(int(rounds)):
        before = resident()
        begin = time.perf_counter()
        weights = treadle.attach(bytes.fromhex(handle))
        took.append((time.perf_counter() - begin) * 1e3)
        grown.append([after - of for after, of in zip(resident(), before)])
        if number + 1 < int(rounds):
            weights.close()
    weights.hold()
    print(
        json.dumps(
            {
                'ms': round(statistics.median(took), 3),
                'slowest_ms': round(max(took), 3),
                'window_bytes': weights.nbytes,
                'resident_mib': round(max(max(of) for of in grown), 3),
            }
        ),
        flush=True,
    )
    signal.pause()


def attach(config, rounds):
    """The owner: a reader attaches to its window and holds it, and is killed while it does. Three readers; of what
    grows, and of the time until the next arrow is through, the most."""
    model, killed, answer = treadle.Model(config), [], {}
    with treadle.Switch(
        treadle.Group.alone(),
        treadle.Layout(model, 'megatron', 1),
        treadle.Layout(model, 'vllm', 1),
        allow_unfilled=True,
    ) as sw:
        for _ in range(3):
            sw.to_infer()
            words = [sys.executable, __file__, 'reader', sw.infer.handle().hex(), rounds]
            with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
                said = json.loads(process.stdout.readline())
                begin = time.perf_counter()
                process.kill()
                sw.to_train()
                killed.append(time.perf_counter() - begin)
            answer = answer or said
            answer['resident_mib'] = max(answer['resident_mib'], said['resident_mib'])
    return answer | {'dead_holder_s': round(max(killed), 3)}


if __name__ == '__main__':
    of = {'plan': plan, 'placements': placements, 'attach': attach, 'reader': reader}[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(of | {'load': round(os.getloadavg()[0], 2)}))
