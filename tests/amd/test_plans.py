"""Every plan on AMD's own library, many times over: applied, read back, changed in place, and freed completely.

The times count: HIP 7.0 to 7.2 refuse hipMemSetAccess by the order of heap addresses, which differs from one time to
the next. A page fault of a GPU ends the test's process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipplan.errors import ApplyError, MachineError
from hipplan.language.loader import LoadedPlan, load
from hipplan.layout.bound import still_needed
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.machines.runtimes import choose
from tests.conftest import PLANS
from tests.faults import generated
from tests.hardware.machine import Held, Machine

TIMES = 3 if os.environ.get("HIPPLAN_QUICK") else 100
SEEDS = range(24)
ACTS: list[tuple[str, dict[str, Any]]] = [
    ("sleep", {}),
    ("wake", {}),
    ("seal", {}),
    ("unseal", {}),
    ("remap", {}),
    ("remap", {"keep_bytes": False}),
    ("remap", {"part": "..2MiB"}),
    ("grow", {"by": "2MiB"}),
    ("shrink", {"by": "2MiB"}),
]
REFUSALS = {"HP213", "HP309", "HP420", "HP440"}
"""What a change may be refused with before the first driver call."""

every_plan = pytest.mark.parametrize("source", [*PLANS, *SEEDS], ids=lambda one: getattr(one, "stem", f"seed{one}"))


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine(choose())


@pytest.fixture(autouse=True)
def on_amd(release: str) -> None:
    """Skips where there is no library of AMD's."""


def plan_of(source: Any, folder: Path) -> LoadedPlan:
    """Of a plan's path, or of a seed."""
    if isinstance(source, int):
        (folder / "data.bin").write_bytes(bytes(100_000))
        source = generated.plan(source, folder)
    return load(source)


@contextmanager
def bound(machine: Machine) -> Iterator[dict[str, Any]]:
    """What the generated plans bind."""
    shared = {"device": "gpu.0", "size": "2MiB", "shareable": "posix_fd"}
    plan = {"hipplan": 1, "devices": {"gpu": {"count": 2}}, "allocations": {"shared": shared}}
    with run(prepare(load(plan), machine.chosen, None), machine.runtime) as layout:
        descriptor = layout.export("shared")
        try:
            yield {"caller": bytearray(65536), "shared": descriptor}
        finally:
            os.close(descriptor)


def changed(layout: Layout) -> tuple[int, int]:
    """How many changes were made in place, and how many refused."""
    made = refused = 0
    for name in [resource.name for resource in layout.program.resources if resource.kind in ("region", "reservation")]:
        for act, arguments in ACTS:
            try:
                getattr(layout, act)(name, **arguments)
                made += 1
            except (ApplyError, MachineError) as error:
                assert {diagnostic.code for diagnostic in error.diagnostics} <= REFUSALS, error
                refused += 1
    return made, refused


@every_plan
def test_a_plan_works_each_time(
    source: Any, machine: Machine, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    plan = plan_of(source, tmp_path)
    try:
        program = prepare(plan, machine.chosen, None)
    except MachineError as error:  # a plan for a larger machine, or of what this release does not have
        pytest.skip(str(error.diagnostics[0].summary))
    made = refused = 0
    with bound(machine) as bind:
        with run(program, machine.runtime, Options(bind=bind)) as layout:
            changed(layout)  # what the library keeps for itself it takes now
        before = Held.by(machine)
        for _ in range(TIMES):
            with run(program, machine.runtime, Options(bind=bind)) as layout:
                assert layout.drift() == []
                both = changed(layout)
                made, refused = made + both[0], refused + both[1]
                assert layout.drift() == []
                layout.update(plan, bind=still_needed(bind, program), lose="*")
                assert layout.drift() == []
        assert Held.by(machine).same(before, 0)
    record_property("plans applied", TIMES)
    record_property("changes in place", made)
    record_property("changes refused", refused)
