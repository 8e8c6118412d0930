"""What SGLang's engine makes of a model's weights: python record_sglang.py FOLDER KIND TP   prints one JSON object.

It has the engine's tensors of each rank, as treadle.match reads them, and with TP 1 what was proved of those that the
engine stores as they were loaded."""

import json
import os
import sys
import tempfile

import sglang_engine
import sglang_probe


def prove(engine, folder, path, rows):
    """As treadle.matches does where the engine is in its own process: the first tensor of each key that the layout
    has."""
    import treadle

    names = {storage.name for storage in treadle.Layout(treadle.Model(folder), "sglang", 1).storages(0)}
    made = {}
    for name, key, *_ in rows:
        if name not in names or tuple(key) in made:
            continue
        before = _forward(engine)
        as_loaded = sglang_probe.ask(engine, 1, path, "noise", name=name, folder=folder)[0]
        noisy = _forward(engine)
        sglang_probe.ask(engine, 1, path, "back", name=name)
        if as_loaded and noisy != before and _forward(engine) == before:
            made[tuple(key)] = (
                "own",
                "it has the bytes that were loaded; noise in it changed a forward pass, "
                "and these bytes brought the same one back",
            )
        else:
            made[tuple(key)] = (
                "refused",
                f"nothing that is written to '{name}' changes a forward pass, and is undone by "
                "the bytes that were loaded",
            )
    return [[list(key), *proof] for key, proof in made.items()]


def _forward(engine):
    from treadle.sglang import _client

    _client.InProcess(engine).reset_caches()
    return sglang_engine.answers(engine)


def main():
    folder, kind, tp = sys.argv[1:4]
    os.environ.update(sglang_engine.environment(int(tp)))
    path = os.path.join(folder, f"{kind}-1")
    engine = sglang_engine.in_process(path, int(tp))
    with tempfile.TemporaryDirectory() as room, open(os.path.join(path, "config.json")) as file:
        assert engine.begin_weight_update()[0]
        ranks = sglang_probe.ask(engine, int(tp), os.path.join(room, "a"), "record")
        made = {"model": kind, "tp": int(tp), "config": json.load(file), "ranks": ranks}
        if tp == "1":
            made["proofs"] = prove(engine, path, os.path.join(room, "a"), ranks[0])
        engine.end_weight_update()
    print(json.dumps(made), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main()
