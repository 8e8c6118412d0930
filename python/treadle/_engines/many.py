"""Several engines that follow the same trainers: one client that calls all of them, at the same time."""

from __future__ import annotations

import typing
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from .client import Client, Payload


class Many:
    """The engines' workers are ranks of one group, in the order of the engines. Where one engine's call fails, its
    error is raised at once: nobody waits for the others."""

    def __init__(self, clients: typing.Sequence[Client]) -> None:
        self.clients = list(clients)

    def workers(self) -> int:
        return sum(self._all(lambda client: client.workers()))

    def init_weight_transfer_engine(self, init_info: Payload) -> None:
        before: dict[int, int] = {}
        count = 0
        for client in self.clients:
            before[id(client)] = count
            count += client.workers()
        self._all(
            lambda client: client.init_weight_transfer_engine(
                {**init_info, "first_rank": init_info["first_rank"] + before[id(client)]}
            )
        )

    def pause(self, mode: str) -> None:
        self._all(lambda client: client.pause(mode))

    def start_weight_update(self) -> None:
        self._all(lambda client: client.start_weight_update())

    def update_weights(self, update_info: Payload) -> None:
        self._all(lambda client: client.update_weights(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._all(lambda client: client.finish_weight_update(weight_version))

    def reset_caches(self) -> None:
        self._all(lambda client: client.reset_caches())

    def resume(self) -> None:
        self._all(lambda client: client.resume())

    def _all(self, call: typing.Callable[[Client], typing.Any]) -> list[typing.Any]:
        pool = ThreadPoolExecutor(len(self.clients), "treadle-engines")
        try:
            futures = [pool.submit(call, client) for client in self.clients]
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False)
