"""Imports all of hipplan and builds the validators of its models, so that processes forked afterwards start at once."""

from __future__ import annotations

import pkgutil


def _import_all() -> None:
    import hipplan

    for module in pkgutil.walk_packages(hipplan.__path__, "hipplan."):
        if not module.name.endswith("__main__") and not module.name.startswith("hipplan.lib"):  # which are runtimes
            __import__(module.name)


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
