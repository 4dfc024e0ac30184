"""Imports all of hipplan, and what that imports late, and builds the validators of its models: processes that are
forked afterwards start at once."""

from __future__ import annotations

import pkgutil


def _import_all() -> None:
    import hipplan

    for module in pkgutil.walk_packages(hipplan.__path__, "hipplan."):
        if not module.name.endswith("__main__") and not module.name.startswith("hipplan.lib"):  # which are runtimes
            __import__(module.name)
    for name in ("rich.console", "rich.progress", "rich.table", "difflib", "heapq"):  # by tables, colours and hints
        __import__(name)


def _build_validators() -> None:
    """Those of all models. Pydantic builds them when they are first used."""
    from pydantic import BaseModel

    models = [*BaseModel.__subclasses__()]
    for model in models:
        models += model.__subclasses__()
        if model.__module__.startswith("hipplan."):
            model.model_rebuild()


_import_all()
_build_validators()
