"""Plans made by a rule, and changes in any order: what slept has its bytes when it is awake again."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import HipplanError
from hipplan.layout.bound import still_needed
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.run import run
from tests.conftest import WHOLE, Simulator
from tests.faults import generated
from tests.faults.harness import as_release
from tests.faults.test_every_call import bound, program_of

RELEASES = [("6.4",), ("7.2.53211", "set_access_sums_in_heap_order"), ("7.3.0",)]
ACTS = (
    *("sleep", "sleep", "sleep", "wake", "wake", "grow", "shrink"),
    *("seal", "unseal", "remap", "move", "fill", "update"),
)
DRIVERS_OWN = {"HP401", "HP402", "HP403"}
done: Counter[str] = Counter()


class Player:
    """A live layout, and what the bytes of that which sleeps were."""

    def __init__(self, layout: Layout, plan: Any, bind: Any, chance: random.Random, folder: Path) -> None:
        self.layout, self.plan, self.bind, self.chance, self.folder = layout, plan, bind, chance, folder
        self.slept: dict[str, bytes] = {}

    def bytes_of(self, name: str) -> bytes | None:
        """The bytes; None if no device may read them."""
        try:
            self.layout.save(name, self.folder / "bytes")
        except HipplanError:
            return None
        return (self.folder / "bytes").read_bytes()

    def play(self) -> None:
        layout, chance = self.layout, self.chance
        kinds = ("region", "reservation", "mapping", "allocation")
        names = [
            resource.name
            for resource in layout.program.resources
            if resource.kind in kinds and "#" not in resource.name
        ]
        if not names:
            return
        act, name, chosen = chance.choice(ACTS), chance.choice(names), chance.sample(names, min(len(names), 2))
        try:
            if act == "sleep":
                self.sleep(chosen)
            elif act == "wake":
                self.wake(chosen)
            elif act == "update":
                layout.update(self.plan, bind=still_needed(self.bind, layout.program), lose="*")
                self.slept = {name: was for name, was in self.slept.items() if name in layout.program.asleep}
            elif act in ("grow", "shrink"):
                getattr(layout, act)(name, by="2MiB")
            elif act == "move":
                layout.remap(name, part=self.part_of(name), device=chance.choice([*layout.program.devices]))
            elif act == "fill":
                layout.fill(name, chance.randrange(256))
            else:
                getattr(layout, act)(name)
            done[act] += 1
        except HipplanError as error:
            assert error.diagnostics[0].code not in DRIVERS_OWN, error
        assert layout.drift() == []

    def part_of(self, name: str) -> tuple[int, int]:
        """One chunk of a region or mapping of a reservation."""
        inside = [resource for resource in self.layout.program.resources if resource.inside == name and resource.memory]
        if not inside:
            return 0, 0  # which is refused
        chosen = self.chance.choice(inside)
        return chosen.offset, chosen.offset + chosen.size

    def sleep(self, chosen: list[str]) -> None:
        to = self.chance.choice(["host", "drop", str(self.folder / f"copy{self.chance.randrange(2)}.bin")])
        awake = [name for name in self.layout if not self.layout.program.sleeps(name) and "#" not in name]
        before = {name: self.bytes_of(name) for name in awake}
        self.layout.sleep(chosen, to=to, checksum=self.chance.random() < 0.5)
        asleep = self.layout.program.asleep
        self.slept |= {name: was for name, was in before.items() if was is not None and name in asleep}
        self.slept = {name: was for name, was in self.slept.items() if asleep.get(name) != "drop"}

    def wake(self, chosen: list[str] | None) -> None:
        self.layout.wake(chosen, retain=self.chance.random() < 0.3)
        for name in [name for name in self.slept if not self.layout.program.sleeps(name)]:
            assert self.bytes_of(name) == self.slept.pop(name), name


@pytest.mark.parametrize("seed", range(300 if WHOLE else 15))
def test_what_slept_has_its_bytes(seed: int, sim: Simulator, tmp_path: Path) -> None:
    with as_release(sim, *RELEASES[seed % 3]):
        program = program_of(seed, tmp_path)
        with bound(sim) as bind, run(program, sim.runtime, Options(bind=bind)) as layout:
            player = Player(layout, generated.plan(seed, tmp_path), bind, random.Random(seed), tmp_path)
            for _ in range(12):
                player.play()
            player.wake(None)
            assert (layout.asleep, player.slept, layout.drift()) == ({}, {}, [])


def test_they_sleep_and_wake() -> None:
    if not done:
        pytest.skip("the seeds above were not run")
    assert min(done[act] for act in set(ACTS) - {"grow"}) > 0, done
