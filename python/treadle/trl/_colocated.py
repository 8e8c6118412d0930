"""Colocate mode: each process of the training has an engine of its own, or a worker of one, and one switch over all
processes writes them in place."""

from __future__ import annotations

import typing

from .. import _tensors, errors
from .._engines import configs, meet
from .._engines.link import About, Link, said_of
from .._engines.trainer import check_weights, config_of
from ..group import Group
from ..layout import Layout
from ..vllm import InProcess, layout_text

if typing.TYPE_CHECKING:
    from ._client import Options


class Colocated:
    """What a process keeps from update to update. mixed: may some engine have weights of two versions? Its methods are
    collective over the training's processes."""

    def __init__(self, module: typing.Any, llm: typing.Any, options: Options) -> None:
        self._module, self._llm, self._options = module, llm, options
        self.mixed = False
        self._group = _group(options.timeout)
        self._link: Link | None = None
        self._places: object = None

    def send(self) -> int:
        """Returns the version that the engines have then. Where tensors lie elsewhere than at the last call, the switch
        is made anew."""
        places, problem = _tensors.places(self._module), ""
        try:
            if self._options.finite:
                check_weights(self._module)
        except Exception as error:  # noqa: BLE001
            problem = meet.words_of(error)
        said = meet.agree(self._group, {"same": self._link is not None and places == self._places}, problem)
        if self._link is None or not all(one["same"] for one in said):
            self.close()
            self._link, self._places = self._meet(), places
        try:
            version = self._link.update()
        except BaseException:
            self._after_failure(self._link)
            raise
        self.mixed = False
        InProcess(self._llm).reset_caches()
        return version

    def _meet(self) -> Link:
        engine = self._llm.llm_engine
        net = engine.model_executor.driver_worker.model_runner.model
        words, problem, model = said_of(
            net,
            lambda: configs.without_drafts(config_of(self._module), (name for name, _ in _tensors.pairs(self._module))),
            lambda: About(layout_text(engine.vllm_config), engine.model_config.hf_config.to_dict()),
        )
        text = meet.engine_layout(meet.agree(self._group, words, problem), "")
        assert model is not None
        train, infer = Layout.of(model, self._module, self._group), Layout(model, text, self._group.size)
        options = self._options
        return Link(
            self._group,
            train,
            infer,
            net,
            train_tensors=self._module,
            undo=options.undo,
            timeout=options.timeout,
            cap=options.cap,
        )

    def _after_failure(self, link: Link) -> None:
        """The next update begins with a new switch. What one process knows of its engine all have to know, since they
        generate together."""
        self.mixed = True
        try:
            said = meet.agree(self._group, {"mixed": link.mixed})
            self.mixed = any(one["mixed"] for one in said)
        except errors.Error:
            pass  # a process is dead
        self.close()

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


def _group(timeout: float) -> Group:
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    return Group.torch(timeout=timeout) if dist.is_initialized() else Group.alone(timeout=timeout)
