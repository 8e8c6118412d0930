"""Server mode: TRL's client of a vLLM server, whose updates are treadle.vllm's."""

from __future__ import annotations

import typing

from trl.generation import vllm_client  # type: ignore[import-not-found,unused-ignore]

from .. import _tensors, errors
from .._engines.kept import Kept
from ..vllm import BACKEND, Trainer


class Options(typing.NamedTuple):
    """What treadle.trl.install was given."""

    undo: bool
    finite: bool
    timeout: float
    cap: int
    address: str | None


class Server:
    """A server, as the training's processes send to it. url: of the first process alone, which calls it."""

    def __init__(self, url: str | None, options: Options) -> None:
        self._url, self._options = url, options
        self._kept: Kept[Trainer] = Kept()

    def send(self, module: typing.Any) -> int:
        """Returns the version that the server has then. Where tensors lie elsewhere than at the last call, all meet
        again. Collective over the training's processes."""
        try:
            make = lambda: Trainer(module, self._url, **self._options._asdict())  # noqa: E731
            return self._kept.get(_tensors.places(module), make).send_weights()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._kept.close()


_WHOLE = "treadle moves all shards together: call update_model_params with the module, or treadle.vllm.Trainer"


class Client(vllm_client.VLLMClient):  # type: ignore[misc,unused-ignore]
    """In the place of TRL's class of this name. Tensors one by one would never be a whole version: they are refused."""

    options: typing.ClassVar[Options]
    _server: Server | None = None

    def init_communicator(self, device: object = 0) -> None:
        """Is the server one that treadle can update?"""
        config = self.get_server_info()["weight_transfer_config"]
        backend = config.get("backend") if isinstance(config, dict) else config
        if backend != BACKEND:
            start = f"""--weight-transfer-config '{{"backend": "{BACKEND}"}}'"""
            raise errors.Refused(
                f"the vLLM server at {self.base_url} has the weight transfer backend {backend!r}; start it with {start}"
            )

    def update_model_params(self, model: typing.Any) -> None:
        """Brings the server the weights of a module, in a script of one process."""
        import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise errors.Refused(
                f"VLLMClient.update_model_params: {dist.get_world_size()} processes share this training, "
                "and all of them have to send: make a treadle.vllm.Trainer on each"
            )
        if self._server is None:
            self._server = Server(self.base_url, self.options)
        self._server.send(model)

    def update_named_params(self, metadata: object, named_params: object) -> None:
        raise errors.Refused(f"VLLMClient.update_named_params takes gathered tensors, and {_WHOLE}")

    def update_named_param(self, name: str, weights: object) -> None:
        raise errors.Refused(f"VLLMClient.update_named_param takes one gathered tensor ('{name}'), and {_WHOLE}")

    def weight_update(self) -> typing.NoReturn:
        raise errors.Refused(f"VLLMClient.weight_update takes tensors one by one, and {_WHOLE}")

    def close_communicator(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
