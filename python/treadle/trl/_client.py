"""Server mode: TRL's client of a vLLM server, whose updates are treadle.vllm's."""

from __future__ import annotations

import typing

from trl.generation import vllm_client  # type: ignore[import-not-found,unused-ignore]

from .. import _tensors, errors
from .._engines.kept import Kept
from ..vllm import BACKEND, Trainer


class Options(typing.NamedTuple):
    """What treadle.trl.install was given."""

    undo: bool = False
    finite: bool = True
    timeout: float = 60
    cap: int = 0
    address: str | None = None


class Server:
    """A server, as the training's processes send to it."""

    def __init__(self, url: str, options: Options) -> None:
        self.url, self._options = url, options
        self._kept: Kept[Trainer] = Kept()

    def send(self, module: typing.Any) -> int:
        """The version that the server has then. Tensors that lie elsewhere than at the last call are met anew. Collective over the training's processes."""
        addresses = tuple(_tensors.address_of(tensor) for _, tensor in _tensors.pairs(module))
        try:
            return self._kept.get(addresses, lambda: Trainer(module, self.url, **self._options._asdict())).send_weights()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._kept.close()


class Client(vllm_client.VLLMClient):  # type: ignore[misc,unused-ignore]
    """In the place of TRL's class of this name. update_model_params brings the server the weights of a module; tensors one by one would never be a whole version."""

    options: typing.ClassVar[Options] = Options()
    _server: Server | None = None

    def init_communicator(self, device: object = 0) -> None:
        """Is the server one that treadle can update?"""
        config = self.get_server_info()["weight_transfer_config"]
        backend = config.get("backend") if isinstance(config, dict) else config
        if backend != BACKEND:
            raise errors.Refused(f"the vLLM server at {self.base_url} has the weight transfer backend {backend!r}; start it with --weight-transfer-config '{{\"backend\": \"{BACKEND}\"}}'")

    def update_model_params(self, model: typing.Any) -> None:
        if self._server is None:
            self._server = Server(self.base_url, self.options)
        self._server.send(model)

    def update_named_params(self, metadata: object, named_params: object) -> None:
        raise errors.Refused("VLLMClient.update_named_params takes gathered tensors, and treadle moves shards: call update_model_params with the module, or treadle.vllm.Trainer")

    def update_named_param(self, name: str, weights: object) -> None:
        raise errors.Refused(f"VLLMClient.update_named_param takes one gathered tensor ('{name}'), and treadle moves all shards together: call update_model_params with the module, "
                             "or treadle.vllm.Trainer")

    def weight_update(self) -> typing.NoReturn:
        raise errors.Refused("VLLMClient.weight_update takes tensors one by one, and treadle moves all shards together: call update_model_params with the module, or treadle.vllm.Trainer")

    def close_communicator(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
