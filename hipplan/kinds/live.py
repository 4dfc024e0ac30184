"""What the steps of all kinds of buffers have, and what hipplan asks each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hipplan.program.steps import CPU_ORDINAL, Step, step_data

if TYPE_CHECKING:
    from hipplan.kinds.making import Making
    from hipplan.language.objects import ResolvedBuffer
    from hipplan.machines.machine import Machine


@dataclass(frozen=True)
class Lack:
    """Something that a machine lacks for a buffer (an HP3xx)."""

    code: str
    summary: str
    where: tuple[str, ...] = ()
    """The place in the plan, below the buffer."""
    why: str = ""
    hint: str = ""


@step_data
class Buffer(Step):
    """Memory that comes with its address. Each kind has a folder in hipplan/kinds, and says there what others ask."""

    lies: ClassVar[Literal["device", "host", "anywhere"]]
    """Where its memory is: on its device, which peers reach, on the host, or where it was used last."""
    row: ClassVar[tuple[str, ...]]
    """Its native row: the operation, and the attributes that are its fields."""
    compared: ClassVar[tuple[str, ...]] = ()
    """The attributes that tell two of one name apart; empty: other steps are about it, too."""
    read_only = False
    """Whether its bytes are in a file, and cannot be written."""
    huge_pages = "none"
    """The huge pages that it takes, on `bound_node`."""

    device: int
    """Where its memory is, or the device that is current in the call."""
    size: int
    """Bytes."""

    def taken_from(self, machine: Machine | None) -> int | None:
        return self.device if self.lies == "device" else CPU_ORDINAL

    @property
    def bound_node(self) -> int:
        """The NUMA node that its memory is bound to; -1: none."""
        return -1

    @classmethod
    def steps_of(cls, buffer: ResolvedBuffer, making: Making) -> Iterable[Step]:
        """The step that makes a buffer, and those about it."""
        size = buffer.spec.size
        assert isinstance(size, int), "open sizes are decided before"
        return (cls(buffer.name, making.span(*buffer.path), making.devices[buffer.device], size),)

    @staticmethod
    def lacks(spec: Any, machine: Machine, name: str, ordinal: int) -> Iterator[Lack]:
        """What a machine lacks for it. spec: its model. name, ordinal: of its device."""
        return iter(())


def flags_of(spec: object, *flags: str) -> tuple[str, ...]:
    """Returns the flags that are set in a model."""
    return tuple(flag for flag in flags if getattr(spec, flag))
