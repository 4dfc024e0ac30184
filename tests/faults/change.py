"""Changes in place for calls to fail in: the layout is the old one, untouched, or the new one, and owns what is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hipplan.errors import ApplyError, HipplanError, LeakError
from hipplan.kinds.allocation.live import CreateAllocation, ImportAllocation
from hipplan.kinds.device.live import CreateDeviceBuffer
from hipplan.kinds.managed.live import CreateManagedBuffer
from hipplan.kinds.mapping.live import Map, SetAccess
from hipplan.kinds.peer.live import EnablePeer
from hipplan.kinds.pinned.live import CreatePinnedBuffer
from hipplan.kinds.reservation.live import Reserve
from hipplan.kinds.stream.live import CreateStream
from hipplan.layout.layout import Layout
from hipplan.layout.options import Options
from hipplan.layout.run import run
from hipplan.layout.state import State
from hipplan.program.contents import STAGING
from hipplan.program.program import Program
from tests.conftest import Key, Simulator, keys_of
from tests.faults.harness import Error, Phase, failures_of

PATTERN_BYTES = 64
_BUFFERS = (CreateDeviceBuffer, CreatePinnedBuffer, CreateManagedBuffer)

Facts = dict[str, Any]


class Change(Phase):
    """An act on a live layout of a program."""

    keeps = True

    def __init__(
        self,
        sim: Simulator,
        program: Program,
        act: Callable[[Layout], Any],
        bind: Mapping[str, Any] | None = None,
        first: Callable[[Layout], Any] | None = None,
    ) -> None:
        """first: a change before it, in which no call fails."""
        super().__init__(sim)
        self.program = program
        self.change = act
        self.bind = bind or {}
        self.first = first

    def begin(self) -> Layout:
        self.others = self.sim.alive()
        layout = run(self.program, self.sim.runtime, Options(bind=self.bind))
        self.written = {address: number % 251 + 1 for number, (_, address) in enumerate(writable(layout))}
        for address, value in self.written.items():
            self.sim.fill(address, value, PATTERN_BYTES)
        if self.first is not None:
            self.first(layout)
        self.before = facts(self.sim, layout)
        self.layout, self.old = layout, layout.program
        return layout

    def act(self, state: Layout) -> None:
        self.change(state)

    def expected(self, before: set[Key], error: Error) -> set[Key]:
        """What the layout says it owns, and the leaks; less what could not be mapped back."""
        failures = failures_of(error)
        missing = {
            ("mapping", failure.arguments.partition("ptr=")[2].partition(",")[0])
            for failure in failures
            if failure.is_change and failure.call == "hipMemMap"
        }
        return self.others | (owned(self.sim, self.layout) - missing) | keys_of(failures) | self._unaddressed(failures)

    def _unaddressed(self, failures: Any) -> set[Key]:
        """Streams have no address that the layout could tell."""
        here = {key for key in self.sim.alive() if key[0] == "stream"}
        made = sum(isinstance(step, CreateStream) for step in self.layout.program.steps)
        leaked = {key for key in keys_of(failures) if key[0] == "stream"}
        assert len(here) == made + len(leaked)
        return here

    def check(self, state: Layout, error: Error | None, call: str, code: str, lasting: bool) -> None:
        failures = failures_of(error)
        undone = error is not None and not isinstance(error, LeakError)
        if error is not None:
            assert isinstance(error, HipplanError)
            changed = getattr(error, "not_as_it_was", ())
            assert error.exit_code == (5 if error.leaks or changed or isinstance(error, LeakError) else 4)
            # Where all calls fail for ever, what the rights are now cannot even be asked.
            lost = ("current device could not be set back", *(["rights of a mapping"] if lasting else []))
            assert all(any(words in line for words in lost) for line in changed)
            text = str(error)
            for name in error.leaks:
                assert f"'{name}'" in text
        if undone:
            assert isinstance(error, ApplyError)
            assert error.diagnostics[0].code == "HP401"
            assert state.program is self.old
        if any(failure.is_change for failure in failures):
            return  # the error reports that the layout has changed
        # The last prefetch of a managed buffer is the only change that cannot be undone.
        assert [difference for difference in state.drift() if not difference.what.startswith("last prefetch")] == []
        now = facts(self.sim, state)
        if undone:
            assert now == self.before
        else:
            stays = {name: fact for name, fact in self.before["bytes"].items() if now["bytes"].get(name, fact) == fact}
            assert stays.keys() == self.before["bytes"].keys()

    def end(self, state: Layout) -> None:
        try:
            state.close()
        except LeakError as error:  # a mapping that leaked before keeps its reservation
            assert {failure.call for failure in error.undone.failures} == {"hipMemAddressFree"}, str(error)
            self.sim.free_everything(but=self.others)


def facts(sim: Simulator, layout: Layout) -> Facts:
    """Addresses, handles, rights, and the bytes at the beginning of everything: by kind of fact, then by what it is."""
    state = layout._holding.state
    names = names_of(state)
    rights = {int(piece["address"], 16): (piece["readers"], piece["writers"]) for piece in sim.ledger()["mappings"]}
    return {
        "address": {name: getattr(layout[name], "address", None) for name in names.all},
        "handle": {name: state.handle_of(name) for name in names.made},
        "access": {name: rights[state.address_of(name)] for name in names.mapped},
        "bytes": {key: sim.read(address, PATTERN_BYTES) for key, address in writable(layout)},
    }


class Names(NamedTuple):
    """What a state speaks of, in the pieces that it has; looked up once for the hundreds of layouts of a sweep."""

    program: Program
    all: list[str]
    made: list[str]
    mapped: list[str]
    writable: list[tuple[str, str]]
    """(allocation or "", mapping or buffer)"""


_known: dict[int, Names] = {}


def names_of(state: State) -> Names:
    program = state.lowered
    if id(program) not in _known or _known[id(program)].program is not program:
        _known.clear()
        made = {s.name: s.device for s in program.steps if isinstance(s, CreateAllocation)}
        mapped = [s for s in program.steps if isinstance(s, Map)]
        rights = {s.name: dict(s.rights) for s in program.steps if isinstance(s, SetAccess)}
        can = [(s.allocation, s.name) for s in mapped if rights.get(s.name, {}).get(made.get(s.allocation, -2)) == "rw"]
        can += [("", s.name) for s in program.steps if isinstance(s, _BUFFERS) and not s.name.startswith(STAGING)]
        _known[id(program)] = Names(
            program, [r.name for r in state.program.resources if not r.asleep], [*made], [s.name for s in mapped], can
        )
    return _known[id(program)]


def writable(layout: Layout) -> list[tuple[Any, int]]:
    """(what it is, address) of all that can be written through the runtime; memory mapped twice, once. What moves
    bytes (#contents.0) has none of its own."""
    state = layout._holding.state
    collected: dict[Any, int] = {}
    for allocation, name in names_of(state).writable:
        address = state.address_of(name)
        collected.setdefault(("handle", state.handle_of(allocation)) if allocation else ("address", address), address)
    return list(collected.items())


def owned(sim: Simulator, layout: Layout) -> set[Key]:
    """What a layout says it has, in the words of the ledger; streams excepted."""
    state = layout._holding.state
    ranges = [int(address, 16) for kind, address in sim.alive() if kind == "reservation"]
    collected: set[Key] = set()
    for step in state.lowered.steps:
        if step.name not in state:
            continue
        if isinstance(step, (CreateAllocation, ImportAllocation)):
            collected.add(("allocation", hex(state.handle_of(step.name))))
        elif isinstance(step, Reserve):
            base = state.address_of(step.name)  # its aligned one
            collected.add(("reservation", hex(max(begin for begin in ranges if begin <= base))))
        elif isinstance(step, Map):
            collected.add(("mapping", hex(state.address_of(step.name))))
        elif isinstance(step, EnablePeer):
            collected.add(("peer", f"{step.device}->{step.peer}"))
        elif type(step).__name__.endswith("Buffer"):
            collected.add(("buffer", hex(state.address_of(step.name))))
    return collected
