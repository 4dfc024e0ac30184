"""Makes a process of hipplan's own start quickly: avoids imports that nothing in it needs."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def without_plugins() -> None:
    """Disable pydantic's search for plugins in all installed packages, which takes a fifth of the start of `validate`.

    PYDANTIC_DISABLE_PLUGINS (pydantic's switch) ends the search, but still imports importlib.metadata, and with it
    email, zipfile and csv; and what this process starts would inherit it. Here pydantic searches once and finds
    nothing, and later calls import the real one. With an incompatible pydantic this only has no effect.
    """
    if "importlib.metadata" in sys.modules or "pydantic.plugin._loader" in sys.modules:
        return
    searched = False

    def entry_points(**given: Any) -> Any:
        if not searched:
            return ()
        from importlib import metadata

        return metadata.entry_points(**given)

    later = ModuleType("importlib.metadata")
    later.entry_points = entry_points  # type: ignore[attr-defined]
    sys.modules["importlib.metadata"] = later
    try:
        from pydantic.plugin import _loader

        _loader.get_plugins()
    except (ImportError, AttributeError):
        sys.modules.pop("pydantic.plugin._loader", None)
    finally:
        del sys.modules["importlib.metadata"]
        searched = True
