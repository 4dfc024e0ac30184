"""All of hipplan that the frozen texts are made with: who rebuilds it changes this file, and no other here."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hipplan
from hipplan import _core
from hipplan.cli import apply as apply_command
from hipplan.cli.main import run as command
from hipplan.files import strict_json
from hipplan.language.loader import LoadedPlan
from hipplan.layout.engine import carry_out
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.prepare import prepare
from hipplan.layout.run import run
from hipplan.layout.state import State
from hipplan.layout.undo import wait_until_freed
from hipplan.layout.verbs import AgreementOrNone, Update
from hipplan.lowering.compiler import compile_change
from hipplan.machines import runtimes
from hipplan.machines.discover import discover
from hipplan.machines.machine import Machine, sim_profile
from hipplan.machines.profiles import load_machine
from hipplan.program import listing
from hipplan.program.difference import Difference
from hipplan.show import render_json

Bind = Mapping[str, Any]


def simulated(machine: str, release: str, quirks: str) -> tuple[_core.Runtime, Machine]:
    """The simulator as a machine under a release of HIP; nothing may be alive."""
    profile = load_machine(machine)
    runtime = runtimes.choose("sim", profile).runtime  # so that it is known as this machine
    lines = [line for line in sim_profile(profile).splitlines() if not line.startswith("hip_version")]
    runtime.configure("\n".join([f"hip_version={release}", *lines, *(f"quirk.{quirk}=1" for quirk in quirks.split())]))
    return runtime, profile


def forget_machine() -> None:
    """The next choice of the simulator configures it again."""
    runtimes._simulated.clear()


def load(file: str) -> LoadedPlan:
    """Of a file, or of the text of a plan."""
    return hipplan.load(file if "\n" in file else Path(file))


def applied(plan: LoadedPlan, machine: Machine, bind: Bind, record: Path) -> Layout:
    """As a user applies it."""
    return hipplan.apply(plan, runtime="sim", machine=machine, bind=bind, record=record, answer=False)


def applier(plan: LoadedPlan, machine: Machine, bind: Bind) -> Callable[[], Layout]:
    """Applies a plan again and again, without measuring the machine each time. Raises as prepare()."""
    chosen = runtimes.choose("sim", machine)
    program = prepare(plan, chosen, machine)
    return lambda: run(program, chosen.runtime, Options(bind=bind))


def updated(layout: Layout, plan: LoadedPlan, bind: Bind, lose: Any) -> Difference:
    """As a user updates it."""
    return layout.update(plan, bind=needed(plan, bind), lose=lose)


def updater(plan: LoadedPlan, machine: Machine, bind: Bind) -> Callable[[Layout], Difference]:
    """Updates layouts of one program again and again, without measuring the machine each time."""
    wanted = Update(_Compiled(plan, discover(runtimes.choose("sim", machine))))
    return lambda layout: carry_out(layout._holding, wanted, Options(bind=needed(plan, bind), lose="*"))


class _Compiled:
    """A plan as an update wants it, compiled once for the program that it is the change from."""

    def __init__(self, plan: LoadedPlan, machine: Machine) -> None:
        self._plan, self._machine = plan, machine
        self._changes: list[Difference] = []

    def change(self, state: State, group: AgreementOrNone) -> Difference:
        if not self._changes or self._changes[0].old is not state.program:
            self._changes = [compile_change(state.program, self._plan, self._machine, before=state.lowered)]
        return self._changes[0]


def settle() -> None:
    """Waits for what a call frees behind its caller, so that its calls are in their order."""
    wait_until_freed()


def needed(plan: LoadedPlan, bind: Bind) -> Bind:
    """What of it a plan binds."""
    specs = (*plan.plan.allocations.values(), *plan.plan.buffers.values())
    names = {getattr(spec, "bind", None) for spec in specs}
    return {name: given for name, given in bind.items() if name in names}


def targets(layout: Layout) -> dict[str, list[str]]:
    """The names of a layout by kind of object, in the order of the plan."""
    names: dict[str, list[str]] = {}
    for resource in layout.program.resources:
        names.setdefault(resource.kind, []).append(resource.name)
    return names


def bytes_of(layout: Layout) -> int:
    """Its memory on devices."""
    return sum(layout.program.bytes_by_device().values())


def room(layout: Layout, reservation: str) -> int:
    """The bytes of addresses behind the last mapping; those of a region are the layout's own matter."""
    resources = [*layout.program.resources]
    size = next(resource.size for resource in resources if resource.name == reservation)
    inside = [resource for resource in resources if resource.kind == "mapping" and resource.inside == reservation]
    return size - max((mapping.offset + mapping.size for mapping in inside), default=0)


def report_of(layout: Layout) -> Iterator[str]:
    """What `hipplan apply` prints, in both forms."""
    yield printed(lambda: apply_command._report(layout, False))
    yield printed(lambda: apply_command._report(layout, True))


def report_of_change(change: Difference) -> Iterator[str]:
    lines = [*map(str, change.lines())] or ["no changes"]
    yield "\n".join(filter(None, [*lines, listing.note(change)]))
    yield "".join(strict_json.pieces(render_json.difference_json(change)))


def report_of_error(error: BaseException) -> Iterator[str]:
    yield f"{type(error).__name__}, exit code {int(getattr(error, 'exit_code', 4))}"
    yield str(error)
    if leaks := getattr(error, "leaks", ()):
        yield f"leaks: {', '.join(leaks)}"
    if changed := getattr(error, "not_as_it_was", ()):
        yield f"not as it was: {', '.join(changed)}"


def preview(*arguments: str) -> str:
    """What `hipplan preview` prints, and its exit code."""
    codes: list[int] = []
    text = printed(lambda: codes.append(command(["preview", *arguments])))
    return f"{text}exit code {codes[0]}\n"


def printed(act: Callable[[], Any]) -> str:
    """What an act writes to standard output and error."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        act()
    out.flush()
    written = out.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()
