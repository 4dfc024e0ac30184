"""Which keys are allowed where in a document: for "did you mean", and for the order in which fmt writes them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Path = tuple[Hashable, ...]


def _flat(annotation: Any) -> list[Any]:
    """The types in a union, without Annotated."""
    origin = get_origin(annotation)
    if origin is None or origin in (dict, list):
        return [annotation]
    return [part for inner in get_args(annotation) for part in _flat(inner)]


class KindOfPlace:
    """A kind of place in a document, such as that of any tensor. Places below it are computed once."""

    def __init__(self, annotation: Any) -> None:
        branches = _flat(annotation)
        self.models: Sequence[type[BaseModel]] = [
            part for part in branches if isinstance(part, type) and issubclass(part, BaseModel)
        ]
        """The models that may be there."""
        self.chosen = any(map(kinds_of, self.models))
        """Whether the key `kind` chooses the model."""
        entries = [get_args(part)[-1] for part in branches if get_origin(part) in (dict, list)]
        self._entry = KindOfPlace(entries[0]) if entries else None
        self._keys: dict[str, KindOfPlace] = {}

    def below(self, step: Hashable) -> KindOfPlace:
        """The place of a key of the models, or else of an entry of the mapping or list."""
        for model in self.models:
            if step in (fields := fields_of(model)):
                key = str(step)
                if key not in self._keys:
                    self._keys[key] = KindOfPlace(fields[key].annotation)
                return self._keys[key]
        return self._entry or _NOWHERE

    def fields(self, kind: object) -> Sequence[str]:
        """The keys that an object of this kind may have here; `kind` matters only where it chooses the model."""
        for model in self.models:
            if not (kinds := kinds_of(model)) or kind in kinds:
                return list(fields_of(model))
        return []


@cache
def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their keys in a document: `not` is no name in Python."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def kinds_of(model: type[BaseModel]) -> tuple[Any, ...]:
    """The values of `kind` that choose this model; empty if it has no such key."""
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()


_NOWHERE = KindOfPlace(None)
"""The place below an unknown key and below names: keys there are the plan's own."""


@cache
def place_of(model: type[BaseModel]) -> KindOfPlace:
    """The place of a whole document."""
    return KindOfPlace(model)


def place_at(model: type[BaseModel], path: Path) -> KindOfPlace:
    """The place of a path in a document."""
    place = place_of(model)
    for step in path:
        place = place.below(step)
    return place


def written_as(step: Hashable, keys: Collection[Hashable]) -> Hashable:
    """The key that pydantic calls so: it puts replacement signs for what UTF-8 cannot encode."""
    if not isinstance(step, str) or "\N{REPLACEMENT CHARACTER}" not in step or step in keys:
        return step
    texts = (key for key in keys if isinstance(key, str))
    return next((key for key in texts if key.encode(errors="surrogatepass").decode(errors="replace") == step), step)
