"""Refuses one allocation after another in all that a change does; run in a process with refusing.c preloaded.

Prints what went wrong, and how many allocations were refused.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipplan import _core
from tests.conftest import Simulator
from tests.cpp import some_rows as row
from tests.cpp.some_rows import MAPPED, MIB, SOME_OF_EVERYTHING, snapshot_of

malloc = ctypes.CDLL(os.environ["LD_PRELOAD"])
malloc.spare.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
sim = Simulator()
wrong: list[str] = []
refused = 0
LONG = "a name too long to be kept without the heap: "
"""Before each name: so that a failure's words need memory."""

SWAP = {"extra_slots": 3, "kept": [(1, 1, 1), (3, 2, 1), (4, 1, 1), (5, 0, 1)]}
UNMAP = {"extra_slots": 3, "same_slots": 3, "kept": [(3, 2, 1), (4, 1, 1), (5, 0, 1)]}
FILE = tempfile.NamedTemporaryFile()  # noqa: SIM115
FILE.write(bytes(8192))
FILE.flush()

Case = tuple[tuple[row.Row, ...], tuple[row.Row, ...], dict[str, Any]]
"""(rows of a layout, rows of a change of it, arguments of begin())."""


def more(base: tuple[row.Row, ...], *rows: row.Row, **plan: Any) -> Case:
    return base, rows, {"slots": 4, "same_slots": len({one[2] for one in base}), **plan}


CASES: dict[str, Case] = {
    "link": more((), row.link(0)),
    "memory": more((), row.memory(0), row.memory(1), row.memory(2, device=1)),
    "imported": more((), row.imported(0)),
    "reserve": more((), row.reserve(0)),
    "search": more((), row.reserve(0, 128 * MIB, at=0x6ABB_0000_0000, exact=True)),
    "map": more((row.memory(0), row.reserve(1)), row.mapped(2, 1, 0)),
    "rights": more(MAPPED, row.rights(2, ((0, "r"),), row.RW)),
    "new rights": more((row.memory(0), row.reserve(1)), row.mapped(2, 1, 0), row.rights(2)),
    "unmap": more(MAPPED, row.unmap(3, 5), **UNMAP | {"slots": 3}),
    "swap": more(
        MAPPED,
        *(row.unmap(3, 5), row.memory(0), row.mapped(2, 1, 0), row.rights(2)),
        **SWAP | {"same_slots": 0, "slots": 3},
    ),
    "stream": more((), row.stream(0)),
    "device buffer": more((), row.device_buffer(0, device=1), row.device_buffer(1)),
    "pinned buffer": more((), row.pinned(0)),
    "fresh memory": more((), row.registered(0)),
    "a file": more((), row.registered(0, 0, FILE.name)),
    "bound memory": more((), row.registered(0, bound=True)),
    "managed": more((), row.managed(0)),
    "advise": more((row.managed(0),), row.advise(0, ("preferred_location", 1), ("unset_preferred_location", 1))),
    "prefetch": more((row.managed(0), row.stream(1)), row.prefetch(0, 1), row.prefetch(0)),
    "attach": more((row.managed(0), row.stream(1)), row.attach(0, 1), row.await_stream(1), row.await_stream()),
    "copy": more((*MAPPED, row.memory(3), row.mapped(4, 1, 3, 0), row.rights(4)), row.copy(4, 2), slots=5),
    "everything": more((), *SOME_OF_EVERYTHING, slots=9),
    "extra": more((), row.stream(4), row.memory(5), slots=4, extra_slots=2),
}


def named(rows: tuple[row.Row, ...]) -> list[row.Row]:
    return [(one[0], LONG + one[1], *one[2:]) for one in rows]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Scene:
    """Holdings with a change of them."""

    def __init__(self, case: Case) -> None:
        base, rows, plan = case
        self.rows = rows
        self.empty = sim.alive()
        self.holdings: Any = row.holding(sim.runtime, named(base), len({one[2] for one in base}))
        self.before = self.looks()
        self.report: Any = None
        self.given = bytearray(MIB)
        self.descriptor, self.theirs = -1, None
        if rows[0][0] == "import allocation":
            self.theirs = row.holding(sim.runtime, [row.memory(0, shared=True)])
            self.descriptor = snapshot_of(self.theirs).share(0)
            self.before = self.looks()
        self.change: Any = _core.Change(self.holdings, _core.Rows(named(rows)), **plan)
        self.change.bind({0: (self.given if self.descriptor < 0 else self.descriptor, MIB)})

    def looks(self) -> Any:
        """Everything alive, the rights on what is mapped, and the preferred device of what is managed."""
        ledger = sim.ledger()
        rights = sorted(
            (mapping["address"], *(mapping[key] for key in ("readers", "writers"))) for mapping in ledger["mappings"]
        )
        advice = [
            sim.runtime.range_attribute(int(buffer["address"], 16), MIB, "preferred_location")
            for buffer in ledger["buffers"]
            if buffer["kind"] == "managed"
        ]
        return sim.alive(), rights, advice

    def advance(self) -> None:
        row.advance(self.change, len(self.rows))

    def end(self) -> None:
        """Nothing may be left in the end."""
        self.change = None
        if self.holdings is not None and not self.holdings.closed:
            report = row.close(self.holdings)
            check(not report.leaks, f"leaks at the close: {row.leak_names(report)}")
        self.holdings = None
        if self.theirs is not None:
            os.close(self.descriptor)
            row.close(self.theirs)
        check(sim.alive() == self.empty, f"leaked: {sim.alive() - self.empty}")
        check(not _core.take_leaks(), "leaks told")
        self.given.append(1)  # let go


def check(holds: bool, claim: str) -> None:
    if not holds:
        wrong.append(f"{place}: {claim}")


place = ""


def sweep(what: str, setup: Callable[[], Scene], act: Callable[[Scene], Any], after: Callable[..., Any]) -> None:
    """Refuses the first, then the second ... allocation of an act, until none is refused."""
    global place, refused
    for k in range(1, 10_000):
        place = f"{what}, allocation {k}"
        scene = setup()
        done = False
        malloc.refuse(k)
        try:
            act(scene)
            done = True
        except MemoryError:
            pass
        except BaseException as error:
            malloc.refuse(0)
            wrong.append(f"{place}: {error!r}")
        left = malloc.refuse(0)
        after(scene, done)
        scene.end()
        del scene
        if left:
            check(done, "not done, though nothing was refused")
            return
        refused += 1


def until_it_works(call: Callable[[], Any]) -> Any:
    while True:
        try:
            return call()
        except MemoryError:
            malloc.refuse(0)


def made(case: Case) -> Scene:
    scene = Scene(case)
    scene.advance()
    return scene


def rolled_back(case: Case) -> Scene:
    scene = made(case)
    scene.change.roll_back()
    return scene


def committed(case: Case) -> Scene:
    scene = made(case)
    scene.change.commit(None)
    return scene


def settled(case: Case) -> Scene:
    scene = committed(case)
    row.free_retired(scene.holdings)
    return scene


def lost(case: Case) -> Scene:
    """Waiting for the device fails, and the text of that error needs memory."""
    scene = settled(case)
    scene.holdings.retired.set_devices([("a", 0), ("b", 1)])
    sim.runtime.arm_faults("hipDeviceSynchronize@1=999")
    return scene


def is_as_before(scene: Scene) -> None:
    check(scene.looks() == scene.before, f"not as before: {scene.looks()}, but {scene.before}")
    check(not scene.holdings.damaged, "damaged")


def back(scene: Scene, done: bool) -> None:
    """After an advance, done or not."""
    scene.change.roll_back()
    report = row.free_retired(scene.holdings)
    check(not report.leaks, f"leaks: {row.leak_names(report)}")
    is_as_before(scene)


def forward(scene: Scene, done: bool) -> None:
    """After an advance that is made again where it was not done."""
    if not done:
        back(scene, done)
        return
    check(scene.change.commit("new"), "not committed")
    check(scene.holdings.state == "new", "the state is not the new one")
    report = row.free_retired(scene.holdings)
    check(not report.leaks, f"leaks: {row.leak_names(report)}")


def free_retired(scene: Scene) -> None:
    """With one report, as often as it takes."""
    scene.report = until_it_works(_core.UndoReport)
    work = until_it_works(lambda: _core.UndoRun(scene.holdings.retired, 60.0))
    until_it_works(lambda: work.run(scene.report, lambda device: None, lambda: None))


def nothing_is_retired(scene: Scene, done: bool) -> None:
    check(done, "it gave up")
    check(not scene.holdings.retired.any, "something is retired still")
    check(not scene.report.leaks, f"leaks: {[leak.name for leak in scene.report.leaks]}")


def undone(scene: Scene, done: bool) -> None:
    nothing_is_retired(scene, done)
    is_as_before(scene)


def decided(scene: Scene, done: bool) -> None:
    until_it_works(lambda: scene.change.commit("new"))
    check(scene.change.committed and scene.holdings.state == "new", "not committed")
    row.free_retired(scene.holdings)


def closed(scene: Scene, done: bool) -> None:
    if not done:
        scene.holdings.close(False)
    report = row.free_retired(scene.holdings)
    check(not report.leaks, f"leaks: {row.leak_names(report)}")


def drop_change(scene: Scene) -> None:
    scene.change = None


def drop_all(scene: Scene) -> None:
    scene.change = None
    scene.holdings = None


def found() -> None:
    """Make the device available again."""
    sim.runtime.arm_faults("")
    _core.take_leaks()


MAKING = (Scene, lambda scene: scene.advance())
ALTERING = ("rights", "unmap", "swap", "advise")
SOME = ("everything", "swap", "bound memory", "extra")
PHASES: dict[str, tuple[Any, Any, Any, tuple[str, ...]]] = {
    "advance and roll back": (*MAKING, back, tuple(CASES)),
    "advance and commit": (*MAKING, forward, SOME),
    "commit": (made, lambda scene: scene.change.commit("new"), decided, SOME),
    "roll back": (made, lambda scene: scene.change.roll_back(), back, SOME),
    "bar": (made, lambda scene: scene.change.bar(), back, SOME),
    "free what was made": (rolled_back, free_retired, undone, (*SOME, *ALTERING)),
    "free what was replaced": (committed, free_retired, nothing_is_retired, ("swap", "extra")),
    "close a change": (made, lambda scene: scene.holdings.close(False), closed, SOME),
    "close": (settled, lambda scene: scene.holdings.close(False), closed, SOME),
    "drop a change": (made, drop_change, lambda scene, done: is_as_before(scene), (*SOME, *ALTERING)),
    "drop all": (settled, drop_all, lambda scene, done: None, SOME),
    "drop all of a lost device": (lost, drop_all, lambda scene, done: found(), SOME),
}
"""What is there before the act, the act, what is claimed after it, and which cases it is tried on."""


def spare_the_driver() -> None:
    """What the driver does without memory is its own affair."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ends = [int(end, 16) for line in lines if line.endswith(sim.runtime.path) for end in line.split()[0].split("-")]
    malloc.spare(min(ends), max(ends))


def main() -> None:
    spare_the_driver()
    sim.runtime.configure(
        "device.0.name=a\ndevice.1.name=b\nlink.0.1=xgmi,1\nlink.1.0=xgmi,1\nquirk.free_blocks_first=1"
    )
    for what, (setup, act, after, names) in PHASES.items():
        for name in names:
            sweep(f"{what}: {name}", lambda: setup(CASES[name]), act, after)  # noqa: B023
    files = []
    for _ in range(2):
        sweep("once more: imported", lambda: Scene(CASES["imported"]), *MAKING[1:], back)
        files.append(open_files())
    check(files[0] == files[1], f"descriptors are left open: {files}")
    print("\n".join([*wrong[:40], f"{refused} refused"]))


if __name__ == "__main__":
    main()
