"""Colocate mode: each process of the training has an engine of its own, or a worker of one, and one switch over all processes writes them in place."""

from __future__ import annotations

import typing

from .. import errors
from .._engines import configs, meet
from .._engines.link import Link
from .._engines.trainer import check_weights, config_of
from ..group import Group
from ..layout import Layout
from ..vllm import layout_text

if typing.TYPE_CHECKING:
    from ._client import Options


class Colocated:
    """What a process keeps from update to update. Collective over the training's processes."""

    def __init__(self, module: typing.Any, llm: typing.Any, options: Options) -> None:
        self._module, self._finite = module, options.finite
        engine = llm.llm_engine
        self._net = engine.model_executor.driver_worker.model_runner.model
        self._group = _group(options.timeout)
        words: dict[str, typing.Any] = {}
        problem, model = "", None
        try:
            words = {"layout": layout_text(engine.vllm_config), "dtype": configs.dtype_of(self._net)}
            config = config_of(module)
            configs.check_config(config, engine.model_config.hf_config.to_dict())
            model = meet.model_of(config)
        except Exception as error:  # noqa: BLE001
            problem = str(error)
        text = meet.engine_layout(meet.agree(self._group, words, problem), "")
        assert model is not None
        train, infer = Layout.of(model, module, self._group), Layout(model, text, self._group.size)
        self.link = Link(self._group, train, infer, self._net, train_tensors=module, undo=options.undo, timeout=options.timeout, cap=options.cap)

    def send(self) -> int:
        """The version that the engines have then."""
        problem = ""
        if self._finite:
            try:
                check_weights(self._module)
            except errors.Refused as error:
                problem = str(error)
        meet.agree(self._group, {}, problem)
        return self.link.update()

    @property
    def mixed(self) -> bool:
        """Has this process's engine weights of two versions?"""
        return self.link.mixed

    def close(self) -> None:
        self.link.close()


def _group(timeout: float) -> Group:
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    return Group.torch(timeout=timeout) if dist.is_initialized() else Group.alone(timeout=timeout)
