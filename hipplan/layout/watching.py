"""Callbacks before memory is unmapped and after it is mapped again, for memory that is registered with a network."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hipplan.kinds.mapping.live import Map, TakeOut
from hipplan.layout.state import State
from hipplan.program.change import Change
from hipplan.program.lookup import mappings_of_memory, resource_of

log = logging.getLogger("hipplan")

OnName = Callable[[str], object]
"""Called with the name that is watched."""


class Watch:
    """layout.watch(): stop() ends it. The layout keeps it, even without a reference to this object."""

    def __init__(
        self, name: str, on_unmap: OnName | None, on_map: OnName | None, stop: Callable[[Watch], None]
    ) -> None:
        self.name = name
        self._on_unmap = on_unmap
        self._on_map = on_map
        self._stop = stop
        self.is_unmapped = False
        """Whether on_unmap was called, and on_map not yet."""

    def stop(self) -> None:
        """Ends the callbacks. A second call does nothing."""
        self._stop(self)

    def call_on_unmap(self) -> None:
        if not self.is_unmapped:
            self.is_unmapped = True
            if self._on_unmap is not None:
                self._on_unmap(self.name)

    def call_on_map(self) -> None:
        self.is_unmapped = False
        if self._on_map is not None:
            self._on_map(self.name)


class Watches:
    """The watches of one layout."""

    def __init__(self) -> None:
        self._all: list[Watch] = []

    def add(self, name: str, on_unmap: OnName | None, on_map: OnName | None) -> Watch:
        watch = Watch(name, on_unmap, on_map, self._remove)
        self._all.append(watch)
        return watch

    def before(self, state: State, change: Change | None = None) -> None:
        """Calls on_unmap of watches whose memory a change unmaps; without a change, of all. Raises what they raise."""
        if not self._all:
            return
        gone = None if change is None else _touched(state, change)
        for watch in tuple(self._all):
            if gone is None or watch.name in gone:
                watch.call_on_unmap()

    def after(self, state: State, *, is_failing: bool = False) -> None:
        """Calls on_map of the watches whose memory is mapped again. Raises what they raise, unless `is_failing`."""
        for watch in tuple(self._all):
            resource = resource_of(state.program, watch.name) if watch.is_unmapped else None
            if resource is None or resource.asleep:
                continue
            try:
                watch.call_on_map()
            except Exception as error:
                if not is_failing:
                    raise
                log.error("on_map of '%s' raised %s: %s", watch.name, type(error).__name__, error)

    def _remove(self, watch: Watch) -> None:
        if watch in self._all:
            self._all.remove(watch)


def _touched(state: State, change: Change) -> set[str]:
    """Names of objects whose memory a change unmaps, and of everything inside."""
    program = state.program
    unmapped = [step for step in change.gone if step.makes]
    unmapped += (step for step in change.changes if step.takes_out)
    names = {step.name for step in unmapped}
    touched = set(names)
    memory = names.union(step.allocation for step in unmapped if isinstance(step, (Map, TakeOut)))
    for mapping in mappings_of_memory(program, memory):
        if mapping.name in names or mapping.memory in names:
            touched |= {mapping.name, mapping.memory, mapping.inside}
    for region in touched & program.regions.keys():
        touched |= {tensor.name for tensor in program.regions[region].tensors}
    return touched
