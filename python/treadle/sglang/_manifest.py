"""What an update sends to the engine in place of tensors: one tensor of bytes, which are a JSON object. It says where
the trainers' store is, and what to do there."""

from __future__ import annotations

import base64
import json
import pickle
import typing

from .. import errors

NAME = "treadle"  # of the tensor

# Each key, and an example of its type. version 0: the meeting; later: the version that the update leads to.
_KEYS: dict[str, object] = {
    "store": "",
    "group": "",
    "ranks": 0,
    "first_rank": 0,
    "model": "",
    "layout": "",
    "hash": "",
    "timeout": 0.0,
    "version": 0,
    "attempt": "",
}


class Manifest(typing.NamedTuple):
    """One of them. attempt: of this call alone; a worker that can take no part says why in the store, at
    problem_key."""

    store: str  #: "host:port" of the trainers' TCPStore
    group: str  #: the name of the meeting
    hash: str  #: of the trainers' model's tensors
    version: int  #: 0: the meeting
    attempt: str
    ranks: int = 0  #: trainers and workers
    first_rank: int = 0  #: of the engine's first worker
    model: str = ""  #: config.json of the trainers' model, its text
    layout: str = ""  #: that the engine must have; "": whatever it has
    timeout: float = 60.0  #: seconds, of every wait

    @property
    def problem_key(self) -> str:
        return f"treadle/problem/{self.attempt}"

    def tensor(self) -> typing.Any:
        """As a tensor of torch."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        return torch.tensor(list(json.dumps(self._asdict()).encode()), dtype=torch.uint8)

    def payload(self) -> str:
        """As SGLang's HTTP route takes named tensors. The bytes themselves go along, and no handle of memory, so that
        the engine may be on another machine."""
        return base64.b64encode(pickle.dumps([(NAME, self.tensor())])).decode()


def read(named_tensors: typing.Any) -> Manifest:
    """Raises Refused for anything else."""
    named = list(named_tensors)
    if len(named) != 1 or named[0][0] != NAME:
        raise errors.Refused(
            f"the loader is given {len(named)} tensors, the first {named[0][0]!r}, and takes one, '{NAME}'"
            if named
            else "the loader is given no tensor"
        )
    try:
        given = json.loads(bytes(named[0][1].reshape(-1).tolist()))
    except (ValueError, TypeError) as error:
        raise errors.Refused(f"the tensor '{NAME}' is not JSON: {error}") from error
    if not isinstance(given, dict) or given.keys() != _KEYS.keys():
        raise errors.Refused(
            f"the manifest has {sorted(given) if isinstance(given, dict) else type(given).__name__}; "
            f"its keys are {', '.join(_KEYS)}: use one version of treadle everywhere"
        )
    for key, example in _KEYS.items():
        types = (int, float) if isinstance(example, float) else (type(example),)
        if isinstance(given[key], bool) or not isinstance(given[key], types):
            raise errors.Refused(f"the manifest's '{key}' is {given[key]!r}, and must be a {types[-1].__name__}")
    return Manifest(**given)
