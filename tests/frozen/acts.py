"""What is done with a plan between its apply and its update: everything that changes a layout in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hipplan.layout.layout import Layout
from tests.frozen import product

Act = Callable[[Layout], Any]
COPIED_MAX = 64 << 20
"""Of a plan with more memory nothing is copied."""
ROOM = 8 << 20
"""A reservation without so much room is not grown: whether the addresses behind it are free is left to chance."""


@dataclass(frozen=True)
class Step:
    """An act on a live layout."""

    title: str
    act: Act
    first: tuple[Act, ...] = ()
    """What comes before it where it starts from a fresh layout."""
    leaves_traces: bool = False
    """Whether a layout remembers something of it after a roll back: that its memory is freed at once."""
    copies: bool = False
    """Whether it copies the bytes of what it changes, which the simulator really does."""


def steps(layout: Layout, devices: int, seed: int | None) -> list[Step]:
    """The acts on a layout, each after those that it needs.

    seed: of a generated pair, where each chain of acts has one region or reservation in turn; of a shipped plan all
    have the first region and the first reservation.
    """
    names = product.targets(layout)
    ranges = [*names.get("region", ()), *names.get("reservation", ())]
    if seed is None:
        chosen = [*names.get("region", ())[:1], *names.get("reservation", ())[:1]]
        out = [step for name in chosen for chain in CHAINS for step in chain(name, f"gpu.{devices - 1}")]
    else:
        chains = [*CHAINS[:3], CHAINS[3 + seed % 3]] if ranges else []
        out = [
            step
            for number, chain in enumerate(chains)
            for step in chain(ranges[(seed + number) % len(ranges)], f"gpu.{devices - 1}")
        ]
    full = [name for name in names.get("reservation", ()) if product.room(layout, name) < ROOM]
    out = [step for step in out if not any(step.title.startswith(f"grow {name}") for name in full)]
    out += [*_of_objects(names, seed), *_of_several(names)]
    is_large = product.bytes_of(layout) > COPIED_MAX
    return [step for step in out if not (is_large and step.copies)]


def _resized(name: str, other: str) -> Sequence[Step]:
    return [
        Step(f"grow {name}", lambda layout: layout.grow(name, by="4MiB")),
        Step(f"grow {name} to what it is", lambda layout: layout.grow(name, to=1)),
        Step(f"shrink {name}", lambda layout: layout.shrink(name, by="2MiB")),
    ]


def _remapped(name: str, other: str) -> Sequence[Step]:
    return [
        Step(f"remap {name}", _remap(name), copies=True),
        Step(f"remap {name} to {other}", lambda layout: layout.remap(name, device=other), copies=True),
        Step(f"remap {name} without its bytes", lambda layout: layout.remap(name, keep_bytes=False)),
    ]


def _sealed(name: str, other: str) -> Sequence[Step]:
    def seal(layout: Layout) -> Any:
        return layout.seal(name)

    return [
        Step(f"seal {name}", seal),
        Step(f"grow {name} while sealed", lambda layout: layout.grow(name, by="2MiB"), (seal,)),
        Step(f"unseal {name}", lambda layout: layout.unseal(name), (seal,)),
    ]


def _slept(to: str) -> Callable[[str, str], Sequence[Step]]:
    def chain(name: str, other: str) -> Sequence[Step]:
        def sleep(layout: Layout) -> Any:
            return layout.sleep(name, to=to)

        return [
            Step(f"sleep {name} to {to}", sleep, leaves_traces=True, copies=to != "drop"),
            Step(f"wake {name} from {to}", lambda layout: layout.wake(name), (sleep,), copies=to != "drop"),
        ]

    return chain


CHAINS = (_resized, _remapped, _sealed, _slept("host"), _slept("drop"), _slept("copy.bin"))


def _of_objects(names: dict[str, list[str]], seed: int | None) -> list[Step]:
    """Remapping what is no range; the last of each kind."""
    kinds = ("mapping", "allocation", "device")
    chosen = kinds if seed is None else (kinds[seed % 3],)
    return [
        Step(f"remap {kind} {name}", _remap(name), copies=True) for kind in chosen for name in names.get(kind, ())[-1:]
    ]


def _of_several(names: dict[str, list[str]]) -> list[Step]:
    slept = [*names.get("allocation", ())[:1], *names.get("region", ())[-1:]]

    def sleep(layout: Layout) -> Any:
        return layout.sleep(slept)

    if not slept:
        return []
    return [
        Step("sleep several", sleep, leaves_traces=True, copies=True),
        Step("wake all", lambda layout: layout.wake(), (sleep,), copies=True),
    ]


def _remap(name: str) -> Act:
    return lambda layout: layout.remap(name)
