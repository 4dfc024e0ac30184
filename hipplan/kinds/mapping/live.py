"""Memory at an address (hipMemMap), and who may use it there (hipMemSetAccess), as steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from hipplan.language.host import HOST
from hipplan.program.checks import Check, Words
from hipplan.program.steps import CPU_ORDINAL, Key, Step, in_words, step_data
from hipplan.units import format_size, short_size

Rights = tuple[tuple[int, str], ...]
"""(ordinal or CPU_ORDINAL, right) of each device that has a right."""
RIGHTS = ("none", "r", "rw")
"""What a right may be, the least first."""


@step_data
class Map(Step):
    call = "hipMemMap"
    makes = "mapping"
    of_mapping = True
    reservation: str
    allocation: str
    offset: int
    size: int
    asked: int

    @property
    def key(self) -> Key:
        return "mapping", self.reservation, self.offset

    @property
    def needs(self) -> tuple[Key, ...]:
        return ("reservation", self.reservation), ("allocation", self.allocation)

    def describe(self) -> str:
        return f"{short_size(self.size)} of {self.allocation} at +{format_size(self.offset)}"

    def taken_out(self, given: SetAccess | None) -> TakeOut:
        """The step that unmaps it to map something else in its place. given: what gives it its rights."""
        rights, together = ((), False) if given is None else (given.rights, given.together)
        return TakeOut(self.name, self.origin, self.reservation, self.allocation, rights, together)

    def read_back(self, values: Iterator[int], words: Words, devices: Mapping[str, int]) -> Iterator[Check]:
        address, base, size = islice(values, 3)
        yield Check(self.name, "mapped piece", f"{self.size} at {address:#x}", f"{size} at {base:#x}")


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
class SetAccess(Step):
    call = "hipMemSetAccess"
    of_mapping = True
    rights: Rights
    """The devices that get access to the whole mapping, and what they may do."""
    together: bool = False
    """The call covers everything mapped in the reservation so far, which has the same rights. Lowering decides that."""

    def describe(self) -> str:
        who = (f"{'host' if o == CPU_ORDINAL else f'device {o}'}: {right}" for o, right in self.rights)
        return ", ".join(who) + (", for everything mapped in the range" if self.together else "")

    def read_back(self, values: Iterator[int], words: Words, devices: Mapping[str, int]) -> Iterator[Check]:
        # A device of the plan that is not named must have no access. HIP does not report the host's.
        desired = dict(self.rights)
        for (name, ordinal), current in zip(devices.items(), values):  # noqa: B905
            yield Check(self.name, f"access of {name}", desired.get(ordinal, "none"), words("access", current))


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
        changes = ", ".join(f"{in_words(o)}: {was[o]} -> {right}" for o, right in self.now if was[o] != right)
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
        stays = ", ".join(f"{in_words(o)}: {right}" for o, right in self.rights)
        return f"{stays} stays" + (", for the whole range" if self.together else "")


def rights_of(access: Mapping[str, str], ordinals: Mapping[str, int]) -> Rights:
    """SetAccess.rights from a plan's access. ordinals: of the plan's devices; KeyError for another."""
    given = ((who, right) for who, right in access.items() if right != "none")
    return tuple((CPU_ORDINAL if who == HOST else ordinals[who], right) for who, right in given)
