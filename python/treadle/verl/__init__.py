"""verl's rollouts take their weights from its trainers' shards, in place (docs/plugins-verl.md).

    actor_rollout_ref.rollout.checkpoint_engine.backend=treadle  # nothing else, since the wheel has the entry point

Neither verl nor torch is imported before it is used: the plug-in waits until verl imports a module that it adds
something to."""

from __future__ import annotations

BACKEND = "treadle"


def register() -> None:
    """Makes the backend "treadle" known to verl in this process; twice is fine. What cannot be registered is told on
    standard error; verl then refuses the backend."""
    from . import _register

    _register.all_of()


__all__ = ["BACKEND", "register"]
