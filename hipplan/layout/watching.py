"""Callbacks before memory goes and after it is mapped again, for what is registered with a network."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hipplan.layout.state import State
from hipplan.program.alterations import TakeOut
from hipplan.program.steps import whole_name
from hipplan.program.way import Way

log = logging.getLogger("hipplan")

OnName = Callable[[str], object]
"""Called with the name that is watched."""


class Watch:
    """layout.watch(): stop() ends it. It is kept by the layout, not by who has this."""

    def __init__(
        self, name: str, on_unmap: OnName | None, on_map: OnName | None, stop: Callable[[Watch], None]
    ) -> None:
        self.name = name
        self._on_unmap = on_unmap
        self._on_map = on_map
        self._stop = stop
        self.is_unmapped = False
        """on_unmap was called, and on_map not yet."""

    def stop(self) -> None:
        """Calls nothing any more. A second one does nothing."""
        self._stop(self)

    def tell_unmap(self) -> None:
        if not self.is_unmapped:
            self.is_unmapped = True
            if self._on_unmap is not None:
                self._on_unmap(self.name)

    def tell_map(self) -> None:
        self.is_unmapped = False
        if self._on_map is not None:
            self._on_map(self.name)


class Watches:
    """Those of one layout."""

    def __init__(self) -> None:
        self._all: list[Watch] = []

    def add(self, name: str, on_unmap: OnName | None, on_map: OnName | None) -> Watch:
        watch = Watch(name, on_unmap, on_map, self._remove)
        self._all.append(watch)
        return watch

    def before(self, state: State, way: Way | None = None) -> None:
        """Calls on_unmap of those whose memory a change unmaps; without a way, of all. Raises what they raise."""
        if not self._all:
            return
        gone = None if way is None else _touched(state, way)
        for watch in tuple(self._all):
            if gone is None or watch.name in gone:
                watch.tell_unmap()

    def after(self, state: State, *, is_failing: bool = False) -> None:
        """Calls on_map of those whose memory is mapped again. Raises what they raise, unless an error is on its way."""
        for watch in tuple(self._all):
            resource = state.resources.get(watch.name) if watch.is_unmapped else None
            if resource is None or resource.asleep:
                continue
            try:
                watch.tell_map()
            except Exception as error:
                if not is_failing:
                    raise
                log.error("on_map of '%s' raised %s: %s", watch.name, type(error).__name__, error)

    def _remove(self, watch: Watch) -> None:
        if watch in self._all:
            self._all.remove(watch)


def _touched(state: State, way: Way) -> set[str]:
    """Names of what a change unmaps memory of, and of all that lies in it."""
    names = {whole_name(step.name) for step in way.gone if step.makes}
    names |= {whole_name(step.name) for step in way.changes if isinstance(step, TakeOut)}
    found = set(names)
    for resource in state.resources.values():
        if resource.kind == "mapping" and not names.isdisjoint((resource.name, resource.memory)):
            found |= {resource.name, resource.memory, resource.inside}
    found |= {
        resource.name for resource in state.resources.values() if resource.kind == "tensor" and resource.inside in found
    }
    return found
