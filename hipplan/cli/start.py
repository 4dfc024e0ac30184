"""What lets the command start quickly: nothing is imported that no verb needs."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any


def without_plugins() -> None:
    """pydantic looks for plugins in the metadata of every installed package: a fifth of the start of `validate`.

    PYDANTIC_DISABLE_PLUGINS (its own switch) ends the search, but importlib.metadata is imported all the same, and
    with it email, zipfile and csv. It is imported on demand. A pydantic that has changed is only slower.
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
