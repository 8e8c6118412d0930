"""Trainers for the tests: processes that shard a model with FSDP2 and take steps, forked from one that has imported
everything."""

import json
import os
import threading
import time
import traceback

from server import free_port


def vllm_trainer(net, url, **options):
    import treadle.vllm

    return treadle.vllm.Trainer(net, url, **options)


def source_trainer(net, url, **options):
    """By vLLM's declaration of its shards."""
    import treadle.vllm
    from vllm.distributed.weight_transfer.base import ModuleSource

    return treadle.vllm.Trainer(ModuleSource(net), url, **options)


def factory_trainer(net, url, **options):
    """By vLLM's declaration of its shards, and its factory."""
    import torch.distributed as dist
    import treadle.vllm
    from vllm.distributed.weight_transfer.base import ModuleSource
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    info = treadle.vllm.TrainerInfo(rank=dist.get_rank(), ranks=dist.get_world_size(), **options)
    return WeightTransferTrainerFactory.trainer_init(info, client=url, source=ModuleSource(net)).trainer


def run(size, url, path, steps, seconds=120, make=vllm_trainer, **options):
    """What each of `size` trainers did in its steps; None for one that died. steps: a list for each trainer; see
    take(). make: what has send_weights."""
    port, pids, pipes = free_port(), [], []
    for rank in range(size):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            done = []
            try:
                _train(rank, url, path, steps[rank], done, make, options)
            except BaseException:  # noqa: BLE001
                done.append(["failed", traceback.format_exc()])
            os.write(writing, json.dumps(done).encode())
            os._exit(0)
        os.close(writing)
        pids.append(pid)
        pipes.append(reading)
    answers, end = [], time.monotonic() + seconds
    for pid, reading in zip(pids, pipes):
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                break
            time.sleep(0.005)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        answers.append(json.loads(said) if said else None)
    return answers


def of(size, url, path, **kept):
    """Runs these trainers, by their steps and more options."""
    return lambda steps, **options: run(size, url, path, steps, **kept, **options)


def _train(rank, url, path, steps, done, make, options):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM

    import treadle

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    net = AutoModelForCausalLM.from_pretrained(f"{path}-1", dtype=torch.bfloat16)
    for layer in net.model.layers:
        fully_shard(layer)
    fully_shard(net)
    started = time.monotonic()
    try:
        trainer = make(net, url, **{"timeout": 20, **options})
    except treadle.Error as error:
        done.append(["refused", type(error).__name__, str(error), time.monotonic() - started])
        return
    done.append(["met", time.monotonic() - started])
    for step in steps:
        take(step, net, trainer, path, done)
    trainer.close()


def times(done):
    """What the first trainer's meeting and updates took, as words."""
    met, *sent = done[0]
    beside = sorted(1000 * (whole - switch) for _, _, whole, switch in sent)
    return (
        f"set-up {met[1]:.3f} s; updates {', '.join(f'{1000 * step[2]:.0f}' for step in sent)} ms, "
        f"beside the switch {beside[0]:.0f} to {beside[-1]:.0f}, in the middle {beside[len(beside) // 2]:.0f} ms"
    )


def take(step, net, trainer, path, done):
    """send: an update. set N: the weights of folder N. nan: one element. die: now. die at: in the next update, before
    the first byte moves. die in S: S seconds after that."""
    import torch

    import treadle

    word, _, argument = step.partition(" ")
    if word == "send":
        started = time.monotonic()
        try:
            version = trainer.send_weights()
            done.append(["sent", version, time.monotonic() - started, trainer.switch.stats["seconds"]])
        except treadle.Error as error:
            done.append(["raised", type(error).__name__, str(error), time.monotonic() - started])
    elif word == "set":
        _set(net, f"{path}-{argument}")
    elif word == "nan":
        with torch.no_grad():
            next(iter(net.parameters())).to_local()[0, 3] = float("nan")
    elif step == "die":
        os._exit(9)
    elif word == "die":
        _die(trainer, float(argument.partition(" ")[2] or 0))
    else:
        raise ValueError(step)


def _set(net, folder):
    import torch
    from safetensors.torch import load_file
    from torch.distributed.tensor import distribute_tensor

    values = load_file(f"{folder}/model.safetensors")
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(
                distribute_tensor(values[name], parameter.device_mesh, parameter.placements, src_data_rank=None)
            )


def _die(trainer, seconds):
    inner = trainer._update

    def update(version):
        if not seconds:
            os._exit(9)
        threading.Timer(seconds, os._exit, (9,)).start()
        return inner(version)

    trainer._update = update
