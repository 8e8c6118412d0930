"""How trainers and workers of an engine meet, and agree.

The first trainer serves a store of torch (TCPStore). Trainers are the first ranks of the group, and the engine's
workers, in their order, the last. Then, on all ranks: words (what each has, or why it refuses), the trainers' layout,
the engine's, words again (whether the weights can be written), the switch."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import tempfile
import typing

from .. import errors
from ..group import Group
from ..layout import Layout
from ..model import Model
from . import configs

PROBLEM = "treadle/problem"  # a key of the store: why somebody does not come
LEFT = "treadle/left"  # a key of the store: why the engine does not follow these trainers any more


def open_store(address: str, serve: bool, timeout: float) -> typing.Any:
    """A TCPStore at "host:port"; port 0 with serve: a free one (store.port). Raises Refused for another form, System
    where it cannot be reached."""
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise errors.Refused(f"the store's address is {address!r}, and must be 'host:port'")
    try:
        return dist.TCPStore(  # type: ignore[attr-defined,unused-ignore]
            host.strip("[]"),
            int(port),
            None,
            serve,
            timeout=datetime.timedelta(seconds=timeout),
            wait_for_workers=False,
        )
    except (RuntimeError, ValueError) as error:
        raise errors.System(f"the store at {address}: {error}") from error


def leave(store: typing.Any) -> None:
    """Tells the trainers of before, if they live, that the engine follows others."""
    with contextlib.suppress(RuntimeError):  # torch's
        store.set(LEFT, b"the engine follows other trainers, who came later")


class Watched:
    """A store in which a meeting ends early if somebody has said why it cannot be."""

    def __init__(self, store: typing.Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)

    def check(self, keys: list[str]) -> bool:
        if self._store.check([PROBLEM]):
            raise errors.Peer(self._store.get(PROBLEM).decode())
        return bool(self._store.check(keys))

    def get(self, key: str) -> bytes:
        return bytes(self._store.get(key))


def words_of(error: BaseException) -> str:
    """What it says; never "", which would mean that nothing is wrong."""
    return str(error) or type(error).__name__


def agree(group: Group, words: typing.Mapping[str, typing.Any], problem: str = "") -> list[dict[str, typing.Any]]:
    """What all ranks say, in their order. Where one has a problem, it raises Refused, and the others Peer with its
    rank. Collective."""
    said = [json.loads(one) for one in group.gather(json.dumps({**words, "problem": problem}).encode())]
    if problem:
        raise errors.Refused(f"rank {group.rank}: {problem}")
    for rank, one in enumerate(said):
        if one["problem"]:
            raise errors.Peer(f"rank {rank}: {one['problem']}")
    return said


def engine_layout(said: typing.Sequence[typing.Mapping[str, typing.Any]], asked: str) -> str:
    """The one layout that all workers have, with the type of their weights; Refused, where it is not the one that was
    asked for."""
    texts = {
        rank: configs.with_key(one["layout"], f"dtype={one['dtype']}") for rank, one in enumerate(said) if one["layout"]
    }
    first = min(texts)
    for rank, text in texts.items():
        if text != texts[first]:
            raise errors.Refused(
                f"the engine's ranks {first} and {rank} have different layouts: {texts[first]} and {text}"
            )
    if asked and asked != said[first]["layout"]:
        raise errors.Refused(f"the engine has layout {said[first]['layout']}, and the trainers ask for {asked}")
    return texts[first]


def hash_of(model: Model) -> str:
    """Of the names, shapes and types of a model's tensors."""
    lines = "\n".join(f"{t.name} {t.shape} {t.dtype} {t.same_as}" for t in model.tensors)
    return hashlib.blake2b(lines.encode(), digest_size=16).hexdigest()


def model_of(config: str) -> Model:
    """The model of a config.json's text."""
    with tempfile.TemporaryDirectory(prefix="treadle-") as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        return Model(path)


def layouts(
    model: Model, source: typing.Any, group: Group, said: typing.Sequence[typing.Mapping[str, typing.Any]], text: str
) -> tuple[Layout, Layout]:
    """The trainers' and the engine's, whose text is `text`, on their ranks: those that say no layout are trainers.
    Where these say what they have been trained with, that is their layout; else the tensors of source say it.
    Collective."""
    trainers = sum(not one["layout"] for one in said)
    infer = Layout(model, configs.on(text, trainers, len(said) - trainers), group.size)
    if trained := said[0].get("trained", ""):
        return Layout(model, configs.on(trained, 0, trainers), group.size), infer
    return Layout.of(model, source, group), infer
