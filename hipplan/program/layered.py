"""Mappings that share what is equal: one that adds or drops a few keys is made without copying the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

Key = TypeVar("Key")
Value = TypeVar("Value")

_GONE: Any = object()
_NONE: Any = object()


class Layered(Mapping[Key, Value]):
    """A mapping in layers, of which later ones count. Its keys are in no particular order.

    Each layer is at most half as large as the one below, so there are few: after n single additions at most log2(n),
    and each key was copied as often. A key that is dropped is marked in a new layer. The lowest layer may be any
    mapping that does not change.
    """

    __slots__ = ("_count", "_layers")

    def __init__(self, base: Mapping[Key, Value]) -> None:
        self._count = len(base)
        self._layers: tuple[Mapping[Key, Value], ...] = ({**base} if isinstance(base, dict) else base,)

    def with_more(self, more: dict[Key, Value]) -> Layered[Key, Value]:
        """more: keys that this mapping does not have."""
        return self._on_top(more, self._count + len(more))

    def with_changed(self, changed: dict[Key, Value]) -> Layered[Key, Value]:
        """changed: keys that this mapping has or does not have."""
        return self._on_top(changed, self._count + sum(key not in self for key in changed))

    def without(self, keys: Iterable[Key]) -> Layered[Key, Value]:
        """keys: keys of this mapping."""
        gone = dict.fromkeys(keys, _GONE)
        return self._on_top(gone, self._count - len(gone))

    def __getitem__(self, key: Key) -> Value:
        for layer in reversed(self._layers):
            value = layer.get(key, _NONE)
            if value is not _NONE:
                if value is _GONE:
                    break
                return cast(Value, value)
        raise KeyError(key)

    def __iter__(self) -> Iterator[Key]:
        first, *others = self._layers
        merged = {**first}
        for layer in others:
            merged.update(layer)
        return (key for key, value in merged.items() if value is not _GONE)

    def __len__(self) -> int:
        return self._count

    def _on_top(self, layer: dict[Key, Value], count: int) -> Layered[Key, Value]:
        layers: list[Mapping[Key, Value]] = [*self._layers, layer]
        while len(layers) > 1 and len(layers[-2]) <= 2 * len(layers[-1]):
            upper = layers.pop()
            layers[-1] = {**layers[-1], **upper}
        if len(layers) == 1:
            layers[0] = {key: value for key, value in layers[0].items() if value is not _GONE}
        made: Layered[Key, Value] = Layered.__new__(Layered)
        made._layers, made._count = tuple(layers), count
        return made


def layered(base: Mapping[Key, Value]) -> Layered[Key, Value]:
    """The same mapping in layers; the mapping itself if it is so already."""
    return base if isinstance(base, Layered) else Layered(base)


class Overlay(dict[Key, Value]):
    """A dict whose missing keys are looked up in another mapping. Its length and its items are its own."""

    __slots__ = ("_below",)

    def __init__(self, below: Mapping[Key, Value]) -> None:
        super().__init__()
        self._below = below

    def __missing__(self, key: Key) -> Value:
        value: Value = self._below[key]
        return value

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._below
