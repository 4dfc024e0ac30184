"""The callbacks of one layout.sleep()."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("hipplan")

OnNames = Callable[[tuple[str, ...]], object]
"""Called with the names that were passed to sleep()."""


class Notice:
    """Its on_unmap and on_map, and whether on_unmap was called."""

    def __init__(self, names: tuple[str, ...], on_unmap: OnNames | None, on_map: OnNames | None) -> None:
        self._names = names
        self._on_unmap = on_unmap
        self._on_map = on_map
        self._is_given = False

    def before(self) -> None:
        """Calls on_unmap. Raises what it raises."""
        if self._on_unmap is not None:
            self._is_given = True
            self._on_unmap(self._names)

    def take_back(self) -> None:
        """Calls on_map after a sleep that failed, if on_unmap was called. Its own error is logged."""
        if not self._is_given or self._on_map is None:
            return
        try:
            self._on_map(self._names)
        except Exception as error:  # the caller is raising a more important error
            log.error("on_map raised %s: %s", type(error).__name__, error)
