"""A custom loader for the tests: it lets them count, read and write what a worker of SGLang has. Its tensor is JSON:
{"do": ..., "path": ..., ...}; answers go to files path.RANK."""

import json

import report


def tensor(**words):
    import torch

    return torch.tensor(list(json.dumps(words).encode()), dtype=torch.uint8)


def load(model, named_tensors):
    import torch.distributed as dist

    words = json.loads(bytes(named_tensors[0][1].tolist()))
    rank = dist.get_rank()
    answer = globals()[f"do_{words['do']}"](model, rank, words)
    with open(f"{words['path']}.{rank}", "w") as file:
        json.dump(answer, file)


def ask(engine, size, path, do, **words):
    """What each of an engine's workers answers."""
    right, message = engine.update_weights_from_tensor(
        [("probe", tensor(do=do, path=path, **words))], load_format="sglang_probe.load", flush_cache=False
    )
    assert right, message
    answers = []
    for rank in range(size):
        with open(f"{path}.{rank}") as file:
            answers.append(json.load(file))
    return answers


def do_count(model, rank, words):
    try:
        from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater as Updater
    except ImportError:  # 0.5.12
        from sglang.srt.model_executor.model_runner import ModelRunner as Updater

    from treadle._engines.link import Link
    from treadle.sglang import _worker

    report.count("sglang", Updater, "update_weights_from_tensor")
    report.count("treadle", _worker._Worker, "receive")
    _worker.receive = _worker.worker.receive
    report.count("treadle", Link, "update")


def do_record(model, rank, words):
    from treadle import matches

    return matches.record(matches.engine_tensors(model))


def do_own(model, rank, words):
    """The kinds of bytes that an update writes, as shares; where the parameters lie; and the names of those that are
    not the files' in `folder`."""
    import torch

    import treadle
    from treadle import matches
    from treadle.sglang import _interface, _worker

    met = _worker.worker.met
    link = met.link if met else None
    layout = treadle.Layout(
        treadle.Model(words["folder"]), treadle.sglang.layout_text(_interface.worker_args()), words["workers"]
    )
    expected, have = matches.loaded(layout, rank), dict(model.named_parameters())
    differing = [
        name
        for name, values in expected.items()
        if name in have and not torch.equal(matches._bytes(have[name]), matches._bytes(values))
    ]
    return {
        "problem": _worker.worker.problem,
        "shares": {kind: link.report.share(kind) for kind in ("own", "window", "layer", "refused")} if link else {},
        "rows": [list(row) for row in link.report.rows] if link else [],
        "addresses": {name: parameter.data_ptr() for name, parameter in have.items()},
        "differing": differing,
        "compared": len(expected),
    }


_kept = {}


def do_noise(model, rank, words):
    """Noise in one tensor; its bytes are kept. Were they those that were loaded?"""
    import torch

    import treadle
    from treadle import matches

    found = next(one for one in matches.engine_tensors(model) if one.name == words["name"])
    expected = matches.loaded(treadle.Layout(treadle.Model(words["folder"]), "sglang", 1), 0)[words["name"]]
    _kept[words["name"]] = expected
    as_loaded = found.shape == tuple(expected.shape) and torch.equal(
        matches._bytes(found.tensor), matches._bytes(expected)
    )
    with torch.no_grad():
        if as_loaded:
            found.tensor.normal_(0, 0.3)
    return as_loaded


def do_back(model, rank, words):
    import torch

    from treadle import matches

    found = next(one for one in matches.engine_tensors(model) if one.name == words["name"])
    with torch.no_grad():
        found.tensor.copy_(_kept.pop(words["name"]))
