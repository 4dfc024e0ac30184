"""The simulator as a release of HIP, on which a plan is played; and the texts of what happened, by aspect."""

from __future__ import annotations

import ctypes
import gc
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hipplan.layout.layout import Layout
from tests.conftest import Simulator
from tests.faults.harness import same_calls_each_time
from tests.frozen import product
from tests.frozen.calls import Names, changes_nothing
from tests.frozen.moving import in_order
from tests.frozen.watching import NAME, watch
from tests.machines.test_releases import RELEASES as QUIRKS

RELEASES = {"6.2": "6.2.41133", "6.4": "6.4.43484", "7.2": "7.2.53211", "7.15": "7.15.0"}
"""Release -> the version that its library reports."""
ASPECTS = ("preview", "calls", "changes", "report", "record", "checks", "alive", "failures")
"""changes: those of the calls that are no questions. alive: what the simulator has after each act. failures: what comes
of each call that fails."""

CODE = "hipErrorOutOfMemory"
_OWN = ("at_us", "us", "started", "process", "provenance", "hipplan", "program", "source")
"""Of a record: times, what names this machine, and the digest of the written form, which has versions."""
_MARK = "=== "

Texts = dict[str, list[str]]


@contextmanager
def as_release(machine: str, release: str, folder: Path) -> Iterator[Simulator]:
    """The simulator as a machine under a release, with the defects of that; the working folder is `folder`."""
    sim = Simulator()
    before = Path.cwd()
    runtime, _ = product.simulated(machine, RELEASES[release], QUIRKS[release])
    runtime.set_retry_pause(0)
    os.chdir(folder)
    try:
        with same_calls_each_time():
            yield sim
    finally:
        os.chdir(before)
        runtime.trace_to("")
        runtime.arm_faults("")
        sim.free_everything()
        runtime.set_retry_pause(1000)
        product.forget_machine()
        product.simulated("sim-2", "7.2.53211", "")
        product.forget_machine()


class Stage:
    """Plays one plan, and keeps the texts."""

    def __init__(self, sim: Simulator, folder: Path) -> None:
        self.sim, self.folder = sim, folder
        self.texts: Texts = {aspect: [] for aspect in ASPECTS}
        self.names = Names()
        self._alive: list[str] = []
        self._trace, self._given = folder / "trace", folder / "given"

    def act(self, title: str, act: Callable[[], Any], report: Callable[[Any], Iterable[str]] | None = None) -> Any:
        """Does it, and keeps the calls, the report or the error, and what is alive then; returns its result, or None
        after an error."""
        self._mark(title)
        gc.collect()
        result, error = None, None
        with self.traced():
            try:
                result = act()
            except Exception as caught:  # of another kind it is a bug, which the report shows
                error = caught
            product.settle()
        ledger = self.sim.ledger()
        made = in_order([*self.names.calls(self.lines(), iter(_lines(self._given)), ledger)])
        self.texts["calls"] += [line for _, line in made]
        self.texts["changes"] += [line for call, line in made if not changes_nothing(call)]
        self._keep_alive([*self.names.alive(ledger)])
        if error is not None:
            self.write("report", product.report_of_error(error))
        elif report is not None:
            self.write("report", report(result))
        del error
        return result

    def _keep_alive(self, alive: list[str]) -> None:
        """What is alive now and was not after the act before, and the other way round."""
        before, now = {*self._alive}, {*alive}
        self.texts["alive"] += [f"- {line}" for line in self._alive if line not in now]
        self.texts["alive"] += [f"+ {line}" for line in alive if line not in before]
        self._alive = alive

    def checks(self, layout: Layout, only_wrong: bool = False) -> None:
        for check in layout.drift() if only_wrong else layout.verify():
            mark = "" if check.ok else f" but {check.current}"
            self.write("checks", [f"{check.name}: {check.what}: {check.desired}{mark}"])

    def meddle(self, layout: Layout) -> None:
        """Takes the rights to write of all mappings away behind hipplan's back, and keeps what hipplan reports."""
        self._mark("meddled with")
        hip = ctypes.CDLL(self.sim.runtime.path)
        for mapping in self.sim.ledger()["mappings"]:
            desc = (ctypes.c_int * 3)(1, 0, 1)  # the device 0 may read
            hip.hipMemSetAccess(ctypes.c_void_p(int(mapping["address"], 16)), ctypes.c_size_t(mapping["size"]), desc,
                                ctypes.c_size_t(1))  # fmt: skip
        self.checks(layout, only_wrong=True)

    def record(self, file: Path) -> None:
        self._mark("the record")
        for text in file.read_text().splitlines():
            event = {key: value for key, value in json.loads(text).items() if key not in _OWN}
            if event["event"] == "apply":
                event["runtime"]["path"] = Path(event["runtime"].get("path", "")).name
                event["machine"] = event["machine"] and {
                    key: event["machine"][key] for key in ("name", "devices", "links")
                }
            line = json.dumps(event).replace(str(self.folder), "FOLDER")
            self.texts["record"].append(Names().text(line))

    def write(self, aspect: str, parts: Iterable[str]) -> None:
        for part in parts:
            text = self.names.text(part).replace(str(self.folder), "FOLDER").replace(self.sim.runtime.path, "RUNTIME")
            text = text.replace(NAME, "RUNTIME")
            self.texts[aspect] += text.splitlines()

    @contextmanager
    def traced(self) -> Iterator[None]:
        for file in (self._trace, self._given):
            file.unlink(missing_ok=True)
        self.sim.runtime.trace_to(str(self._trace))
        watch(self._given)
        try:
            yield
        finally:
            self.sim.runtime.trace_to("")
            watch(None)

    def lines(self) -> list[str]:
        """The trace of the last act."""
        return _lines(self._trace)

    def _mark(self, title: str) -> None:
        for aspect in ("calls", "changes", "report", "checks", "alive"):
            self.texts[aspect].append(_MARK + title)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
