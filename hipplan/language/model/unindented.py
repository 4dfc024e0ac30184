"""Keys that stand below the object they belong to but are not indented -> one error instead of one for each key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel

from hipplan.errors import Diagnostic, Span
from hipplan.language.model.places import Path, fields_of, place_at


class Unindented:
    """The objects of a document without a value whose keys come after them, in the same column."""

    def __init__(self, model: type[BaseModel], data: Any) -> None:
        self._keys: dict[Path, str] = {}
        """The path of such an object -> the first of its keys."""
        self._strays: set[Path] = set()
        """The paths of those keys."""
        if isinstance(data, dict):
            known = fields_of(model)
            self._look((), data, lambda name, key: key not in known and name in known)
            for noun, objects in data.items():
                if noun in known and isinstance(objects, dict):
                    fields = {field for parent in place_at(model, (noun, "")).models for field in fields_of(parent)}
                    self._look((noun,), objects, partial(_is_field, fields))

    def _look(self, path: Path, objects: dict[Any, Any], belongs: Callable[[Any, Any], bool]) -> None:
        owner: Any = None
        for key, value in objects.items():
            if owner is not None and belongs(owner, key):
                self._keys.setdefault((*path, owner), key)
                self._strays.add((*path, key))
            else:
                owner = key if value is None else None

    def has(self, path: Path) -> bool:
        """Whether an error at this path is about such an object or one of its keys."""
        return any(path[:end] in self._keys or path[:end] in self._strays for end in (1, 2))

    def diagnostic(self, path: Path, span: Callable[..., Span | None]) -> Diagnostic | None:
        """HP103, for the error of the object itself; the errors of its keys are parts of it."""
        if path not in self._keys:
            return None
        name, key = path[-1], self._keys[path]
        hint = f"indent {key}: and the keys after it, so that they are below {name}:"
        return Diagnostic(
            "HP103",
            f"'{name}' is empty: '{key}' below it is not indented",
            span((*path[:-1], key), key=True),
            hint=hint,
        )


def _is_field(fields: set[str], _: Any, key: Any) -> bool:
    return key in fields
