"""A store in an actor of Ray: it runs outside of the ranks, so it outlives ranks that fail."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from hipplan.processes.connections import Look
from hipplan.ranks.stores import ANSWER_S, StoreLost, attempts
from hipplan.ranks.words import refused


class _Values:
    """The actor."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def first(self, key: str, value: bytes) -> bytes:
        return self._values.setdefault(key, value)

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)


def start(**options: Any) -> Any:
    """Starts an actor that keeps the values of one group; returns its handle, for hipplan.group(handle, rank, size).

    options: of Ray, for where it runs. It ends with its last handle. Make one for each start of the ranks.

    Raises SettingError (HP434): Ray is not installed.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise refused("a group of Ray actors needs Ray", str(error), "pip install ray; or use a folder") from None
    return ray.remote(_Values).options(**{"num_cpus": 0, **options}).remote()


def is_handle(over: object) -> bool:
    actor = sys.modules.get("ray.actor")
    return actor is not None and isinstance(over, actor.ActorHandle) and hasattr(over, "first") and hasattr(over, "get")


class RayStore:
    """A store over the actor of start(). It waits at most ANSWER_S for a reply."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        self._ray = import_module("ray")

    def first(self, key: str, value: bytes) -> bytes:
        stored: bytes = self._answer(self._actor.first, key, value)
        return stored

    def get(self, key: str, until: float, look: Look) -> bytes | None:
        for _ in attempts(until, look):
            value: bytes | None = self._answer(self._actor.get, key)
            if value is not None:
                return value
        return None

    def _answer(self, method: Any, *arguments: object) -> Any:
        try:
            return self._ray.get(method.remote(*arguments), timeout=ANSWER_S)
        except Exception as error:  # Ray has no class for all that can go wrong with a cluster
            raise StoreLost(f"Ray's actor that keeps the values does not answer: {error}") from None
