"""Tasks for fillers: the request to the filler, and what its result changes. A failed task changes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from hipplan.holders.command_line import CommandLine
from hipplan.holders.generations import Generation, Generations, SavedBytes
from hipplan.processes.packets import Message, Received
from hipplan.program.backups import HOST

State = Literal["filling", "replacing", "sleeping", "waking"]
FILL, SAVE, RESTORE = "fill", "save", "restore"
"""The kinds of tasks in the first message to a filler."""

_DESCRIPTION: dict[str, type] = {
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
    """The holder's state in `ps` meanwhile."""
    command_line: CommandLine
    """The command line of the filler."""
    request: Message
    """The first message to the filler."""
    descriptors: Sequence[int] = ()
    """Sent with the request."""

    @abstractmethod
    def check(self, result: Received) -> None:
        """Raises ValueError if the message is not a result of this task."""

    @abstractmethod
    def finish(self, result: Received) -> str:
        """Put the result into effect and take over its descriptors. Returns what to log. Raises OSError."""

    def abandon(self) -> None:  # noqa: B027  # most tasks have nothing to release
        """Release what was prepared for a filler that has failed."""


class FillTask(Task):
    """Make and fill a generation of memory, and make it the current one."""

    state: State = "filling"

    def __init__(self, generations: Generations, command_line: CommandLine, beside: Mapping[str, int]) -> None:
        """beside: bytes that other generations use meanwhile, by UUID of a device."""
        self._generations = generations
        self.command_line = command_line
        self.request = {"task": FILL, "beside": dict(beside)}

    def check(self, result: Received) -> None:
        _check_description(result)

    def finish(self, result: Received) -> str:
        generation = self._generations.switch(result.message["made"], self.command_line, result.descriptors)
        return f"{generation.description['plan']}: filled, generation {generation.number}"


class ReplaceTask(FillTask):
    """Make and fill the replacement of the current generation."""

    state: State = "replacing"

    def __init__(
        self, generations: Generations, command_line: CommandLine, beside: Mapping[str, int], replaces: Message
    ) -> None:
        """replaces: the old memory, and what may be lost with it: program; given and access, as of Generation and
        Holder; lose: names."""
        super().__init__(generations, command_line, beside)
        self.request |= {"replaces": replaces}


class RefillTask(FillTask):
    """Fill the plan of a generation that sleeps without its bytes again."""

    state: State = "waking"

    def __init__(
        self, generations: Generations, current: Generation, beside: Mapping[str, int], options: Sequence[str]
    ) -> None:
        super().__init__(generations, current.command_line.with_options(options), beside)
        self._plan = {key: current.description[key] for key in ("plan", "digest")}
        self.request |= self._plan

    def check(self, result: Received) -> None:
        super().check(result)
        if any(result.message["made"][key] != value for key, value in self._plan.items()):
            raise ValueError("another plan")


class SaveTask(Task):
    """Write the bytes of a generation into host memory and free its device memory."""

    state: State = "sleeping"

    def __init__(self, current: Generation, options: Sequence[str]) -> None:
        """Raises OSError."""
        self._current = current
        current.wait_until_freed()
        self._backup = SavedBytes(HOST, current.size)
        self.command_line = current.command_line.with_options(options)
        self.request = {"task": SAVE, "program": current.description["program"]}
        self.descriptors = [*current.descriptors, *self._backup.descriptors]

    def check(self, result: Received) -> None:
        if result.descriptors or result.message.get("saved") != self._current.size:
            raise ValueError("not all bytes are saved")

    def finish(self, result: Received) -> str:
        self._backup.complete()
        self._current.sleep(self._backup)
        return f"{self._current.description['plan']}: asleep, {self._backup.size} bytes in host memory"

    def abandon(self) -> None:
        self._backup.close()


class RestoreTask(Task):
    """Make the memory of a generation again, with the bytes of its backup."""

    state: State = "waking"

    def __init__(
        self, current: Generation, backup: SavedBytes, beside: Mapping[str, int], options: Sequence[str]
    ) -> None:
        self._current = current
        self.command_line = current.command_line.with_options(options)
        self.request = {"task": RESTORE, "program": current.description["program"], "beside": dict(beside)}
        self.descriptors = backup.descriptors

    def check(self, result: Received) -> None:
        if result.message.get("restored") != self._current.size:
            raise ValueError("not all bytes are restored")
        if len(result.descriptors) != self._current.description["allocations"]:
            raise ValueError("descriptors are missing")

    def finish(self, result: Received) -> str:
        self._current.wake(result.descriptors)
        return f"{self._current.description['plan']}: awake"


def wake_task(generations: Generations, beside: Mapping[str, int], options: Sequence[str]) -> Task:
    """The task that wakes the current generation."""
    assert generations.current is not None
    assert generations.current.backup is not None
    if generations.current.backup.place == HOST:
        return RestoreTask(generations.current, generations.current.backup, beside, options)
    return RefillTask(generations, generations.current, beside, options)


def _check_description(result: Received) -> None:
    made: Any = result.message.get("made")
    if not isinstance(made, dict) or not all(isinstance(made.get(key), kind) for key, kind in _DESCRIPTION.items()):
        raise ValueError("an invalid description of a generation")
    if made["allocations"] != len(result.descriptors):
        raise ValueError("descriptors are missing")
