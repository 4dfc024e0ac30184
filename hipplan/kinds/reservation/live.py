"""A range of addresses (hipMemAddressReserve), as a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hipplan.errors import ApplyError, Diagnostic
from hipplan.program.checks import Check, Reading
from hipplan.program.refusals import refuse
from hipplan.program.steps import Step, step_data
from hipplan.units import short_size


@step_data
class Reserve(Step):
    call = "hipMemAddressReserve"
    makes = "reservation"
    size: int
    asked: int
    alignment: int
    """Bytes, a power of two; 0 for none."""
    slack: int
    """Bytes reserved beyond size so that an aligned base fits: HIP checks the alignment but ignores it."""
    address: int
    """The address wanted; 0 for any."""
    exact: bool

    def describe(self) -> str:
        at = f" at {self.address:#x}" + ("" if self.exact else " if free") if self.address else ""
        return f"{short_size(self.size)} of addresses{at}"

    def checks(self, reading: Reading) -> Iterator[Check]:
        if self.alignment:
            rest = reading.address_of(self.name) % self.alignment
            yield Check(self.name, f"address modulo {self.alignment}", "0", str(rest))

    def at_address(self, address: int) -> Reserve:
        """The same range at this address, and at no other."""
        return replace(self, address=address, exact=True, slack=0)

    def not_had(self, why: str, placed_at: int) -> ApplyError:
        """HP404: the address cannot be had that it requires. placed_at: where the driver put it."""
        hint = (
            "choose another address, or use address_policy: prefer; "
            "if the address is from a lock, lock again with --address-base"
        )
        summary, notes = f"'{self.name}' cannot be at {self.address:#x}", (f"the driver placed it at {placed_at:#x}",)
        return ApplyError(Diagnostic("HP404", summary, self.origin, why=why, hint=hint, notes=notes))


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
