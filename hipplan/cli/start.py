"""Makes the command start quickly: avoids imports that no verb needs."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any


def without_plugins() -> None:
    """Disable pydantic's search for plugins in all installed packages, which takes a fifth of the start of `validate`.

    PYDANTIC_DISABLE_PLUGINS (pydantic's switch) ends the search, but still imports importlib.metadata, and with it
    email, zipfile and csv. Here they are imported on demand. With an incompatible pydantic this only has no effect.
    """
    if "importlib.metadata" in sys.modules or "pydantic.plugin._loader" in sys.modules:
        return

    def entry_points(**given: Any) -> Any:
        from importlib import metadata

        return metadata.entry_points(**given)

    later = ModuleType("importlib.metadata")
    later.entry_points = entry_points  # type: ignore[attr-defined]
    sys.modules["importlib.metadata"] = later
    try:
        import pydantic.plugin._loader  # noqa: F401
    except ImportError:
        sys.modules.pop("pydantic.plugin._loader", None)
    finally:
        del sys.modules["importlib.metadata"]
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
