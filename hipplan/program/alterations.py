"""Steps that alter existing objects. Each contains what is needed to undo it."""

from __future__ import annotations

from hipplan.errors import ApplyError, Diagnostic
from hipplan.program.steps import CPU_ORDINAL, Reserve, Rights, Step, step_data
from hipplan.units import format_size, full_size, short_size

WAKE_IT = "call wake() first"


@step_data
class ChangeAccess(Step):
    """Changes who may use an existing mapping."""

    call = "hipMemSetAccess"
    now: Rights
    """The new rights of all devices that have a right now or had one before."""
    before: Rights
    together: bool = False
    """The same as SetAccess.together."""

    def describe(self) -> str:
        was = dict(self.before)
        changes = ", ".join(f"{_who(o)}: {was[o]} -> {right}" for o, right in self.now if was[o] != right)
        return changes + (", for the whole range" if self.together else "")


@step_data
class KeepAccess(Step):
    """Sets rights of a mapping of the old layout that peer links widen, once before the links and once after them."""

    call = "hipMemSetAccess"
    rights: Rights
    """What the devices that would get more have."""
    together: bool
    """The same as SetAccess.together."""
    is_undone: bool
    """The roll back makes the call again: so it does before the links, which are undone first."""

    def describe(self) -> str:
        stays = ", ".join(f"{_who(o)}: {right}" for o, right in self.rights)
        return f"{stays} stays" + (", for the whole range" if self.together else "")


@step_data
class ChangeAdvice(Step):
    """Changes the advice for a part of an existing managed buffer."""

    call = "hipMemAdvise"
    offset: int
    size: int
    now: tuple[str, int]
    """The advice, and the device."""
    before: tuple[str, int]
    """The advice that undoes it."""

    def describe(self) -> str:
        called, device = self.now
        return f"{called} ({_who(device)}), {short_size(self.size)} at +{format_size(self.offset)}"

    def listed(self) -> str:
        return self.describe()


@step_data
class TakeOut(Step):
    """Unmaps a mapping of the old layout to map something else in its place."""

    call = "hipMemUnmap"
    takes_out = True
    reservation: str
    allocation: str
    rights: Rights
    """The rights that the mapping gets when the unmapping is undone."""
    together: bool = False
    """The same as SetAccess.together."""

    def describe(self) -> str:
        return f"{self.allocation} makes room"


@step_data
class ReserveBeside(Reserve):
    """Reserves more addresses directly behind a reservation that is full."""

    follows: str
    at: int
    """Bytes from the base of the reservation that it extends."""

    def not_had(self, why: str, placed_at: int) -> ApplyError:
        """HP420: there is something behind the reservation that it extends."""
        why = f"{self.address:#x}, directly after its last mapping, cannot be had: {why}"
        hint = f"give '{self.follows}' a larger size in the plan"
        return refuse(f"'{self.follows}' cannot grow where it is", why=why, hint=hint)


@step_data
class CopyBytes(Step):
    """Copies the bytes of memory that is recreated into its new allocation, which is mapped at a temporary place."""

    call = "hipMemcpyPeer"
    source: str
    in_place: bool
    """The source is a mapping of the old layout, not a temporary one."""
    source_device: int
    target: str
    target_device: int
    size: int

    def describe(self) -> str:
        return f"{short_size(self.size)} from device {self.source_device} to device {self.target_device}"


def before(allocation: str) -> str:
    """The name of an allocation's old memory while the new one exists beside it."""
    return f"{allocation} (before)"


def refuse(summary: str, *, why: str = "", hint: str = "") -> ApplyError:
    """HP420: this layout cannot be changed so. Nothing has been changed."""
    return ApplyError(Diagnostic("HP420", summary, why=why, hint=hint))


MAPPED_ON_HOST = "its memory is on the host until it wakes"
"""HP441: why memory that sleeps there, still mapped, cannot be changed."""


def refuse_asleep(name: str, why: str = "") -> ApplyError:
    """HP441: an object was used whose memory sleeps."""
    why = why or "its memory was freed; only its addresses are kept"
    return ApplyError(Diagnostic("HP441", f"'{name}', or part of it, is asleep", why=why, hint=WAKE_IT))


def cannot_sleep(name: str, why: str, hint: str = "") -> ApplyError:
    """HP440: memory that cannot sleep."""
    return ApplyError(Diagnostic("HP440", f"'{name}' cannot sleep", why=why, hint=hint))


def no_room_to_wake(device: str, needed: int, free: int, what: str = "") -> Diagnostic:
    """HP442. needed, free: bytes of the device. what: what wakes, with a space before it."""
    summary = f"{device} lacks {full_size(needed - free)} to wake{what}: {full_size(needed)} are needed"
    hint = "everything is still asleep, and no copy is lost: free memory on the device, then wake again"
    return Diagnostic("HP442", summary, why=f"{full_size(free)} are free", hint=hint)


def _who(ordinal: int) -> str:
    return "the host" if ordinal == CPU_ORDINAL else f"device {ordinal}"
