"""`python -m treadle.ray`: runs of treadle on a Ray cluster (docs/ray.md)."""

from __future__ import annotations

import sys
import typing

from .. import errors
from ._run import Request, run, say

HELP = """\
python -m treadle.ray train CONFIG [key=value ...] [OPTION ...]

Runs `treadle train CONFIG` on a Ray cluster. The resource pools of the configuration become
placement groups: the slots of an entry are on one node (STRICT_PACK). Each slot has a process,
and the controller is one more, which is rank 0 and works alone; slot s is rank s + 1. Rollouts,
losses and weights are the same bits as those of `mpirun -n N treadle train CONFIG`.

Without pools in the configuration there is one of all roles.

The configuration, its data and the folder of the run have the same paths on all nodes, and each
node has this version of treadle. Ctrl-C or SIGTERM ends the run after the current step and saves
a checkpoint; again ends it at once. The exit status is that of the command.

  --address ADDRESS  of the cluster (default: RAY_ADDRESS, or the cluster that runs on this machine);
                     local: a Ray of this machine alone, for this run
  --cpus N           processors of a slot, as Ray counts them; may be a fraction (default: 1)
  --slots N          without pools in the configuration: the slots of the one pool (default: as many
                     as fit on the largest node)
  --help             print this text

All other options are those of `treadle train`, without the ones by which ranks meet.

Examples:
  python -m treadle.ray train ppo.yaml
  python -m treadle.ray train ppo.yaml actor_config.lr=1e-5 --resume --threads 4 --cpus 4
  python -m treadle.ray train grpo.yaml --slots 8 --json
  python -m treadle.ray train examples/ppo-pools.yaml --address local --cpus 0.3
  ray job submit -- python -m treadle.ray train /shared/ppo.yaml actor_config.save=/shared/runs/1
"""
OWN = ("--address", "--cpus", "--slots")
OF_MEETING = ("--meet", "--job", "--rank", "--ranks", "--nodes")
WITHOUT_A_RUN = ("--plan", "--help-config")


def parse(words: typing.Sequence[str]) -> Request:
    """What follows `train`. Raises Refused."""
    given: dict[str, str] = {}
    others: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if name in OWN:
            if name in given:
                raise errors.Refused(f"{name} is given twice")
            given[name] = value if equals else next(left, "")
            if not given[name]:
                raise errors.Refused(f"{name} needs a value")
        elif name in OF_MEETING:
            raise errors.Refused(f"{name}: ranks meet by Ray here; leave it out")
        elif name in WITHOUT_A_RUN:
            raise errors.Refused(f"{name} starts no run: treadle train {name} needs no Ray")
        else:
            others.append(word)
    if not others or others[0].startswith("-"):
        raise errors.Refused("needs CONFIG.yaml as its first word; see python -m treadle.ray --help")
    return Request(
        config=others[0],
        words=others[1:],
        address=given.get("--address", "auto"),
        cpus=_number("--cpus", given.get("--cpus", "1"), float),
        slots=_number("--slots", given["--slots"], int) if "--slots" in given else None,
    )


Number = typing.TypeVar("Number", int, float)


def _number(name: str, text: str, kind: type[Number]) -> Number:
    try:
        value = kind(text)
    except ValueError:
        value = kind(0)
    if not 0 < value < 1 << 20:
        raise errors.Refused(f"{name} is '{text}', and must be a number above 0")
    return value


def main(words: typing.Sequence[str]) -> int:
    if "--help" in words or not words:
        sys.stdout.write(HELP)
        return 0 if words else 2
    try:
        if words[0] != "train":
            raise errors.Refused(f"there is no command '{words[0]}'; see python -m treadle.ray --help")
        return run(parse(words[1:]))
    except errors.Error as error:
        say(str(error))
        return 2 if isinstance(error, errors.Refused) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
