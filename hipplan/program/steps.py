"""Steps: one state-changing driver call each, as plain data. The compiled part runs them as rows (hipplan/lowering).

A step either happened or did not. The object's owner exists before the call, so no step needs its own undo: roll back
and teardown free objects, latest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hipplan.errors import Span
from hipplan.program.checks import Check, Reading, Words

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    from hipplan.machines.machine import Machine
else:

    def dataclass_transform(**_: Any) -> Any:
        """Python 3.10 has none, and only type checkers look at it."""
        return lambda decorator: decorator


_Kind = TypeVar("_Kind")

Key = tuple[object, ...]
"""(kind, and what tells its objects apart) of an object that a step makes: mostly its name."""

RANK_SIGN = "@"
"""Rank 2's region 'heap' and device 'gpu' are called 'heap@2' and 'gpu@2' in other ranks. Names in plans have no such
sign (parts.py)."""

CPU_ORDINAL = -1
"""The ordinal that stands for the CPU: hipCpuDeviceId."""
UNSEEN = -2
"""The ordinal of another rank's device that this process does not see or use."""


def in_words(ordinal: int) -> str:
    """The device with this ordinal, as steps name it."""
    return "the host" if ordinal == CPU_ORDINAL else f"device {ordinal}"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def step_data(kind: type[_Kind]) -> type[_Kind]:
    """A dataclass that mypy treats as frozen. A really frozen one takes three times as long to make, and programs have
    thousands. Steps of frequent kinds are made with positional arguments, which is twice as fast as keywords."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


@step_data
class Step:
    """What every step has: the plan's name for the object, and its place in the plan."""

    call: ClassVar[str]
    """The HIP function this step calls."""
    makes: ClassVar[str] = ""
    """The kind of object that it makes; empty where it makes none."""
    owns_memory: ClassVar[bool] = False
    """Whether it makes an allocation with memory of this process, which can move, sleep and be exported."""
    is_import: ClassVar[bool] = False
    """Whether it makes an allocation of another process's memory."""
    is_content: ClassVar[bool] = False
    """Whether it moves bytes of what other steps make: contents come last, because no roll back restores bytes."""
    is_fixed: ClassVar[bool] = False
    """For a step about an object: whether the object has to be made again where this step differs."""
    awaits_stream: ClassVar[bool] = False
    """Whether it does nothing but wait for work in a stream."""
    of_mapping: ClassVar[bool] = False
    """Whether it maps memory, or gives rights on a mapping."""
    takes_out: ClassVar[bool] = False
    """Whether it unmaps a mapping of the old layout."""
    is_repeated: ClassVar[bool] = False
    """For a step about an object: whether it is done again where it differs, and the object stays."""
    why_awake: ClassVar[str] = ""
    """Why its object cannot sleep by itself; empty where it can."""
    instead_of_sleep: ClassVar[str] = ""
    """What to do about that."""
    why_not_held: ClassVar[str] = ""
    """Why a holder cannot hold its object; empty where it can."""

    name: str
    origin: Span | None

    def describe(self) -> str:
        """One line of text, without the name."""
        raise NotImplementedError

    @property
    def key(self) -> Key | None:
        """The key of its object, equal in two programs for the same object; None for a step that makes none."""
        return (self.makes, self.name) if self.makes else None

    @property
    def needs(self) -> tuple[Key, ...]:
        """The keys of other objects without which it cannot be done, and without which its object cannot stay."""
        return ()

    def altered(self, before: Sequence[Step], now: Sequence[Step]) -> Iterator[Step]:
        """The steps that alter its object, which stays. before, now: the steps about it that make nothing."""
        return iter(())

    def listed(self) -> str:
        """What the list of a change says of it; empty where the line of its object says all."""
        return ""

    @property
    def owner(self) -> int | None:
        """Whose memory its allocation is, as of facts.Owners; None where it makes no allocation."""
        return None

    @property
    def descriptors(self) -> int:
        """File descriptors that its allocation takes, at most: AMD's runtime takes one, hipplan one that is shared."""
        return 0

    @property
    def is_shareable(self) -> bool:
        """Whether another process may get the memory of its allocation."""
        return False

    @property
    def is_for_network(self) -> bool:
        """Whether network cards reach its memory, and so only where it is now."""
        return False

    def exportable(self) -> Step:
        """The same step, whose allocation other processes may get if its memory is this process's."""
        return self

    def moved_to(self, number: int, location: str) -> Step:
        """The same step with the memory of its allocation there. number: the ordinal, or the NUMA node."""
        return self

    @property
    def is_on_device(self) -> bool:
        """Whether it owns memory of a device."""
        return self.owns_memory and self.owner != CPU_ORDINAL

    @property
    def is_on_host(self) -> bool:
        """Whether it owns memory of the host."""
        return self.owns_memory and self.owner == CPU_ORDINAL

    @property
    def passed_as(self) -> str:
        """The name in the caller's `bind` of what it is made of; empty where the caller passes nothing for it."""
        return ""

    @property
    def from_rank(self) -> int:
        """The rank of the group that sends the memory that it imports; -1: none does."""
        return -1

    @property
    def stream_used(self) -> tuple[str, int] | None:
        """(stream, its device) in which it enqueues work, or whose work it awaits; None for most."""
        return None

    def taken_from(self, machine: Machine | None) -> int | None:
        """The ordinal of the device that it takes its `size` bytes from, CPU_ORDINAL for the host; None: from none, or
        from wherever managed memory moves to."""
        return None

    def checks(self, reading: Reading) -> Iterator[Check]:
        """Compares it with what HIP reports about its object: nothing of most."""
        return iter(())

    def read_back(self, values: Iterator[int], words: Words, devices: Mapping[str, int]) -> Iterator[Check]:
        """Compares it with numbers that native code has read for it, where it reads all of a kind at once. values:
        those of this step and of later ones. devices: the plan's names -> ordinals."""
        return iter(())

    def range_checks(self, about: Sequence[Step], reading: Reading) -> Iterator[Check]:
        """Compares parts of its object with what HIP reports. about: the steps about it that make nothing."""
        return iter(())


def named(step: Step) -> Callable[[str], Step]:
    """A function that makes the same step for another name."""
    kind: Callable[..., Step] = type(step)
    others = [getattr(step, field) for field in _fields_after_name(kind)]
    return lambda name: kind(name, *others)


@cache
def _fields_after_name(kind: Callable[..., Step]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))[1:]  # type: ignore[arg-type]
