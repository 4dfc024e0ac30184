"""Steps that alter what is there already. Each says what takes it back."""

from __future__ import annotations

from hipplan.errors import ApplyError, Diagnostic
from hipplan.program.steps import CPU_ORDINAL, Reserve, Step, step_data
from hipplan.units import format_size

Rights = tuple[tuple[int, str], ...]
"""(ordinal or CPU_ORDINAL, right), as in SetAccess."""


WAKE_IT = "call wake() first"


@step_data
class ChangeAccess(Step):
    """Other rights on a mapping that stays."""

    call = "hipMemSetAccess"
    now: Rights
    """Of all who have, or had, a right."""
    before: Rights
    together: bool = False
    """As of SetAccess."""

    def describe(self) -> str:
        was = dict(self.before)
        changes = ", ".join(f"{_who(o)}: {was[o]} -> {right}" for o, right in self.now if was[o] != right)
        return changes + (", for the whole range" if self.together else "")


@step_data
class ChangeAdvice(Step):
    """Other advice for a part of a managed buffer that stays."""

    call = "hipMemAdvise"
    offset: int
    size: int
    now: tuple[str, int]
    """The advice, and the device."""
    before: tuple[str, int]
    """The advice that takes it back."""

    def describe(self) -> str:
        called, device = self.now
        return f"{called} ({_who(device)}), {format_size(self.size)} at +{format_size(self.offset)}"


@step_data
class TakeOut(Step):
    """Unmaps a mapping of the old layout to map something else in its place."""

    call = "hipMemUnmap"
    reservation: str
    allocation: str
    rights: Rights
    """What the mapping gets when it is mapped back."""
    together: bool = False
    """As of SetAccess."""

    def describe(self) -> str:
        return f"{self.allocation} makes room"


@step_data
class ReserveBeside(Reserve):
    """More addresses for a reservation that is full, right behind it."""

    follows: str
    at: int
    """Bytes from the base of what it follows."""


@step_data
class CopyBytes(Step):
    """The bytes of memory that is recreated, to a second place where it is mapped for this."""

    call = "hipMemcpyPeer"
    source: str
    in_place: bool
    """The source is a mapping of the old layout, not a temporary one."""
    source_device: int
    target: str
    target_device: int
    size: int

    def describe(self) -> str:
        return f"{format_size(self.size)} from device {self.source_device} to device {self.target_device}"


def before(allocation: str) -> str:
    """What the old memory of an allocation is called while the new one is there too."""
    return f"{allocation} (before)"


def refuse(summary: str, *, why: str = "", hint: str = "") -> ApplyError:
    """HP420: a change that this layout cannot make. Nothing has happened."""
    return ApplyError(Diagnostic("HP420", summary, why=why, hint=hint))


def refuse_asleep(name: str, why: str = "") -> ApplyError:
    """HP441: a use of what sleeps."""
    why = why or "its memory was freed; only its addresses are kept"
    return ApplyError(Diagnostic("HP441", f"'{name}', or part of it, is asleep", why=why, hint=WAKE_IT))


def cannot_sleep(name: str, why: str, hint: str = "") -> ApplyError:
    """HP440."""
    return ApplyError(Diagnostic("HP440", f"'{name}' cannot sleep", why=why, hint=hint))


def _who(ordinal: int) -> str:
    return "the host" if ordinal == CPU_ORDINAL else f"device {ordinal}"
