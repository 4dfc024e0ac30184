"""One object of a program as reports show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hipplan.language.model import Attached

RANGES = ("region", "reservation")
"""The kinds of objects that are ranges of addresses."""

Access = tuple[tuple[str, str], ...]
"""(device name, right) of each who has one."""


def everywhere(several: Iterable[Access]) -> Access:
    """What each device may do at all of several places. several: the access at each place."""
    first, *rest = map(dict, several)
    for other in rest:
        first = {
            who: min(right, other[who]) for who, right in first.items() if who in other
        }  # min() works because "r" sorts before "rw"
    return tuple(first.items())


def right_attached(attached: Mapping[str, Attached], mapping: str, reservation: str) -> Attached:
    """What attached processes may do with a mapping. attached: of a program."""
    return attached.get(mapping, attached.get(reservation, "r")) if attached else "r"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One object of a layout as a user sees it."""

    name: str
    kind: str
    """allocation, reservation, mapping, region, tensor, device, pinned, registered, managed, stream or peer."""
    device: str
    """The plan's name of the device that has it, or `host`; empty for objects without a place."""
    pinned_with: str = ""
    """The device that was current when pinned or registered memory was made."""
    asked: int = 0
    """Bytes that the plan requests."""
    size: int = 0
    """Bytes that it takes: `asked` with padding."""
    access: Access = ()
    """What each device may do with all bytes of a mapping, region or tensor."""
    access_by_holder: tuple[tuple[str, Access], ...] = ()
    """(device that has memory of a region, who may use that memory), if that differs by device."""
    attached: Attached = "r"
    """What processes that attach to a holder may do with it, within its access."""
    sealed: bool = False
    """It is read-only until it is unsealed."""
    asleep: str = ""
    """If its memory sleeps: where its bytes are (backups.py); else empty."""
    inside: str = ""
    """The reservation of a mapping, the region of a tensor."""
    offset: int = 0
    """Bytes from the start of `inside`."""
    memory: str = ""
    """The allocation behind a mapping."""
    read_only: bool = False
    """A file that is registered read-only."""
    imported: bool = False
    """Another process's allocation, whose memory is counted as in use already."""
    dtype: str = ""
    """A tensor's type, by its name in hipplan.files.dtypes."""
    shape: tuple[int, ...] = ()
    """A tensor's shape."""
    overflow: bool = False
    """A region that grows on the host where its device is full."""
    bytes_by_device: tuple[tuple[str, int], ...] = ()
    """(device, bytes) of a region or tensor over several devices."""

    def access_text(self, show: Callable[[str], str] = str) -> str:
        """The access of each device, as text. show: how to name a device."""
        text = ", ".join(f"{who}: {right}" for who, right in self._named(show).items()) or "nobody"
        notes = (
            (self.attached == "rw", "attached: rw"), (self.sealed, "sealed"), (self.asleep, "asleep"),
            (self.overflow, "overflow: host"),
        )  # fmt: skip
        return ", ".join([text, *(note for applies, note in notes if applies)])

    def _named(self, show: Callable[[str], str]) -> dict[str, str]:
        if not self.access_by_holder:
            return {show(who): right for who, right in self.access}
        own, elsewhere = self._own_and_elsewhere()
        if len(set(own.values())) == 1 and len({elsewhere.get(who, "none") for who in own}) == 1:
            access = {"owner": next(iter(own.values())), "others": elsewhere.get(next(iter(own)), "none")}
            return access | {show(who): right for who, right in elsewhere.items() if who not in own}
        access = {f"{show(who)} in its part": right for who, right in own.items()}
        return access | {show(who) + " elsewhere" * (who in own): right for who, right in elsewhere.items()}

    def _own_and_elsewhere(self) -> tuple[dict[str, str], dict[str, str]]:
        """(device -> its right on its own part, device -> its right on the parts of all others)."""
        own = {holder: dict(access).get(holder, "none") for holder, access in self.access_by_holder}
        rights: dict[str, list[str]] = {}
        for holder, access in self.access_by_holder:
            for who, right in access:
                if who != holder:
                    rights.setdefault(who, []).append(right)
        return own, {who: min(theirs) for who, theirs in rights.items()}

    @property
    def devices(self) -> tuple[str, ...]:
        """The plan's names for what has its bytes: devices, in the order of addresses, or `host`; none of a
        reservation."""
        return tuple(device for device, _ in self.bytes_by_device) or tuple(filter(None, (self.device,)))

    @property
    def waste(self) -> int:
        """Bytes of padding."""
        return self.size - self.asked
