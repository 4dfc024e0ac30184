"""Plays a plan, or a pair of plans, on a release: the texts of each aspect."""

from __future__ import annotations

import gc
import json
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipplan.layout.layout import Layout
from tests.conftest import ROOT, Simulator
from tests.frozen import acts, pairs, product
from tests.frozen.failing import Failing
from tests.frozen.stage import Stage, Texts, as_release
from tests.frozen.watching import library

SHARED = """
hipplan: 1
devices: {gpu: {count: 2}}
allocations: {shared: {device: gpu.0, size: 2MiB, shareable: posix_fd}}
"""

_OF_HOST = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "COLUMNS",
            "NO_COLOR", "FORCE_COLOR", "HIPPLAN_RUNTIME", "HIPPLAN_HOLDER")  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A plan and the one that it is updated to, as files below the folder they are played in."""

    name: str
    machine: str
    first: str
    second: str
    seed: int | None = None
    """Of a generated pair."""

    @property
    def devices(self) -> int:
        return 8 if "8" in self.machine else 4 if "4" in self.machine else 2


def shipped() -> list[Subject]:
    """The plans of the repository. Each becomes the next one of its machine."""
    out = []
    for folder, machine in (("plans", "sim-2"), ("plans/mi300x-8", "mi300x-8"), ("plans/h200-4", "h200-4")):
        files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).glob("*.yaml"))]
        for file, after in zip(files, [*files[1:], files[0]], strict=True):
            out.append(Subject(Path(file).stem, machine, file, after))
    return out


def generated() -> list[Subject]:
    return [Subject(f"pair-{seed}", "sim-2", "before.yaml", "after.yaml", seed) for seed in range(pairs.COUNT)]


def subject(name: str) -> Subject:
    """Raises KeyError."""
    return {one.name: one for one in [*shipped(), *generated()]}[name]


def play(one: Subject, release: str, failures: bool) -> Texts:
    """failures: also fails each driver call in turn."""
    with tempfile.TemporaryDirectory() as name:
        played, empty = Path(name, "played").resolve(), Path(name, "root")
        played.mkdir()
        empty.mkdir()
        _lay_out(one, played)
        with on_no_host(empty), collected_between_acts(), as_release(one.machine, release, played) as sim:
            return _Player(one, sim, played).play(failures)


@contextmanager
def collected_between_acts() -> Iterator[None]:
    """The garbage collector runs between acts only: what it drops may free what a change has just retired, with other
    driver calls than the change itself would make."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


@contextmanager
def on_no_host(root: Path) -> Iterator[None]:
    """Drivers, limits, terminal and variables of this host say nothing. root: an empty folder."""
    before = dict(os.environ)
    for name in _OF_HOST:
        os.environ.pop(name, None)
    os.environ |= {"HIPPLAN_ROOT": str(root), "HIPPLAN_SOCKETS": str(root), "HIPSIM_LIBRARY": str(library())}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _lay_out(one: Subject, folder: Path) -> None:
    if one.seed is None:
        (folder / "plans").symlink_to(ROOT / "plans")
        return
    (folder / "data.bin").write_bytes(bytes(100_000))
    for file, plan in zip((one.first, one.second), pairs.pair(one.seed), strict=True):
        (folder / file).write_text(json.dumps(plan, indent=1))


class _Player:
    def __init__(self, one: Subject, sim: Simulator, folder: Path) -> None:
        self.one, self.sim, self.folder = one, sim, folder
        self.stage = Stage(sim, folder)
        self.machine = product.load_machine(one.machine)
        self.first, self.second = product.load(one.first), product.load(one.second)

    def play(self, failures: bool) -> Texts:
        self._preview()
        with self._bound() as bind:
            if self._changes(bind):
                self._updates(bind)
                if failures:
                    self._failures(bind)
        return self.stage.texts

    def _preview(self) -> None:
        machine = ("--runtime", "sim") if self.one.machine == "sim-2" else ("--machine", self.one.machine)
        for arguments in ((self.one.first,), (self.one.second, "--from", self.one.first)):
            for form in ("text", "json"):
                self.stage.write("preview", [product.preview(*arguments, *machine, "--all", "--format", form)])
        self.stage.write("preview", [product.preview(self.one.first, *machine)])

    def _changes(self, bind: product.Bind) -> bool:
        """Applies the plan and changes it in each way. Returns whether it could be applied."""
        stage, record = self.stage, self.folder / "record.jsonl"
        layout: Layout | None = stage.act("apply", lambda: self._applied(bind, record), product.report_of)
        if layout is None:
            stage.record(record)
            return False
        stage.checks(layout)
        for step in acts.steps(layout, self.one.devices, self.one.seed):
            stage.act(step.title, lambda step=step: step.act(layout), product.report_of_change)
        stage.checks(layout)
        stage.act("update", lambda: product.updated(layout, self.second, bind, "*"), product.report_of_change)
        stage.checks(layout)
        stage.write("report", product.report_of(layout))
        stage.act("close", layout.close, lambda undone: [undone.summary()])
        stage.record(record)
        return True

    def _applied(self, bind: product.Bind, record: Path) -> Layout:
        return product.applied(self.first, self.machine, product.needed(self.first, bind), record)

    def _updates(self, bind: product.Bind) -> None:
        """Updates an untouched layout, and back."""
        stage, record = self.stage, self.folder / "record.jsonl"
        layout = stage.act("apply again", lambda: self._applied(bind, record))
        for title, plan, lose in (
            ("update without losing anything", self.second, ()),
            ("update to the same", self.first, ()),
            ("update at once", self.second, "*"),
            ("update back", self.first, "*"),
        ):
            stage.act(title, lambda p=plan, w=lose: product.updated(layout, p, bind, w), product.report_of_change)
            stage.checks(layout)
        stage.meddle(layout)
        stage.act("close again", layout.close, lambda undone: [undone.summary()])

    def _failures(self, bind: product.Bind) -> None:
        apply = product.applier(self.first, self.machine, product.needed(self.first, bind))
        with apply() as layout:
            steps = acts.steps(layout, self.one.devices, self.one.seed)
        everything = self.one.devices == 2
        Failing(self.stage, "apply", lambda: None, lambda _: apply()).sweep(everything)
        if self.one.seed is not None and steps:
            steps = [steps[self.one.seed % len(steps)]]
        for step in steps:
            Failing(self.stage, step.title, lambda step=step: self._prepared(apply, step), step.act,
                    step.leaves_traces).sweep(everything)  # fmt: skip
        update = product.updater(self.second, self.machine, bind)
        Failing(self.stage, "update", apply, update).sweep(everything)
        Failing(self.stage, "close", apply, lambda layout: layout.close()).sweep(everything)

    @staticmethod
    def _prepared(apply: Callable[[], Layout], step: acts.Step) -> Layout:
        layout = apply()
        for act in step.first:
            with suppress(Exception):
                act(layout)
        return layout

    @contextmanager
    def _bound(self) -> Iterator[Mapping[str, Any]]:
        """What the generated plans bind."""
        if self.one.seed is None:
            yield {}
            return
        with product.applier(product.load(SHARED), self.machine, {})() as layout:
            descriptor = layout.export("shared")
            try:
                # Not a bytearray: the heap of a Python that is no PIE has short addresses, which show in the texts.
                yield {"caller": mmap.mmap(-1, 65536), "shared": descriptor}
            finally:
                os.close(descriptor)
