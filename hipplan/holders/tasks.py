"""What a holder has fillers do, and what it makes of the results. Whatever fails, it keeps what it had."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hipplan.holders.generations import Backup, Generation, Kept
from hipplan.holders.orders import Order
from hipplan.processes.packets import Message, Received
from hipplan.program.backups import HOST

State = Literal["filling", "replacing", "sleeping", "waking"]
FILL, SAVE, RESTORE = "fill", "save", "restore"
"""What the first message to a filler says that it is to do."""

_MADE: dict[str, type] = {
    "program": str,
    "plan": str,
    "digest": str,
    "machine": str,
    "runtime": str,
    "family": str,
    "allocations": int,
    "size": int,
    "bytes": dict,
    "bytes_by_uuid": dict,
    "writable": list,
}


class Task(ABC):
    """Work for one filler."""

    state: State
    """What `ps` shows meanwhile."""
    order: Order
    """The command line of the filler."""
    request: Message
    """The first message to it."""
    descriptors: Sequence[int] = ()
    """Sent with that."""

    @abstractmethod
    def check(self, result: Received) -> None:
        """Raises ValueError if that is no result of such a task."""

    @abstractmethod
    def finish(self, result: Received) -> str:
        """The result counts from here on; its descriptors are the task's. Returns what to log. Raises OSError."""

    def abandon(self) -> None:  # noqa: B027  # most have nothing to release
        """Releases what was prepared for a filler that has failed."""


class Fill(Task):
    """Make memory and fill it: the first, or beside what is kept."""

    def __init__(self, kept: Kept, order: Order, beside: Mapping[str, int]) -> None:
        """beside: bytes that stay, by UUID of device."""
        self._kept = kept
        self.state = "filling" if kept.current is None else "replacing"
        self.order = order
        self.request = {"task": FILL, "beside": dict(beside)}

    def check(self, result: Received) -> None:
        _check_made(result)

    def finish(self, result: Received) -> str:
        generation = self._kept.switch(result.message["made"], self.order, result.descriptors)
        return f"{generation.made['plan']}: filled, generation {generation.number}"


class FillAnew(Fill):
    """Fill again what sleeps without its bytes."""

    def __init__(self, kept: Kept, current: Generation, beside: Mapping[str, int], options: Sequence[str]) -> None:
        super().__init__(kept, current.order.again(options), beside)
        self.state = "waking"
        self._same = {key: current.made[key] for key in ("plan", "digest")}
        self.request |= self._same

    def check(self, result: Received) -> None:
        super().check(result)
        if any(result.message["made"][key] != value for key, value in self._same.items()):
            raise ValueError("another plan")


class Save(Task):
    """Write the bytes of the memory into host memory, which frees the device."""

    state: State = "sleeping"

    def __init__(self, current: Generation, options: Sequence[str]) -> None:
        """Raises OSError."""
        self._current = current
        self._backup = Backup(HOST, current.size)
        self.order = current.order.again(options)
        self.request = {"task": SAVE, "program": current.made["program"]}
        self.descriptors = [*current.descriptors, *self._backup.descriptors]

    def check(self, result: Received) -> None:
        if result.descriptors or result.message.get("saved") != self._current.size:
            raise ValueError("not all bytes are saved")

    def finish(self, result: Received) -> str:
        self._backup.complete()
        self._current.fall_asleep(self._backup)
        return f"{self._current.made['plan']}: asleep, {self._backup.size} bytes in host memory"

    def abandon(self) -> None:
        self._backup.close()


class Restore(Task):
    """Make the memory again, with the bytes that are in host memory."""

    state: State = "waking"

    def __init__(self, current: Generation, backup: Backup, beside: Mapping[str, int], options: Sequence[str]) -> None:
        self._current = current
        self.order = current.order.again(options)
        self.request = {"task": RESTORE, "program": current.made["program"], "beside": dict(beside)}
        self.descriptors = backup.descriptors

    def check(self, result: Received) -> None:
        if result.message.get("restored") != self._current.size:
            raise ValueError("not all bytes are restored")
        if len(result.descriptors) != self._current.made["allocations"]:
            raise ValueError("descriptors are missing")

    def finish(self, result: Received) -> str:
        self._current.wake_up(result.descriptors)
        return f"{self._current.made['plan']}: awake"


def waking(kept: Kept, beside: Mapping[str, int], options: Sequence[str]) -> Task:
    """For what is asleep."""
    assert kept.current is not None
    assert kept.current.backup is not None
    if kept.current.backup.kept == HOST:
        return Restore(kept.current, kept.current.backup, beside, options)
    return FillAnew(kept, kept.current, beside, options)


def _check_made(result: Received) -> None:
    made: Any = result.message.get("made")
    if not isinstance(made, dict) or not all(isinstance(made.get(key), kind) for key, kind in _MADE.items()):
        raise ValueError("not what a filler makes")
    if made["allocations"] != len(result.descriptors):
        raise ValueError("descriptors are missing")
