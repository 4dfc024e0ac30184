"""Makes a plan for serving a model: its weights, key/value cache and pinned staging, on each of several devices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import product
from math import prod
from pathlib import Path

from hipplan.errors import Diagnostic, PlanError, printable
from hipplan.files.dtypes import BY_NAME, meant_dtype
from hipplan.files.tensorfiles import ArrayInFile
from hipplan.language.budget import LIMITS
from hipplan.language.canonical import canonical
from hipplan.language.checkpoints import Divided, contents_of, entries_of, note_on, quoted, tensors_of
from hipplan.language.decoders import Decoder, read_config
from hipplan.language.source import load_yaml
from hipplan.plain import counted
from hipplan.units import format_size

PAGE_TOKENS = 16
"""Tokens of one page of the cache."""
_INDEX, _WEIGHTS, _CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_INDICES = "nmijk"


@dataclass(frozen=True)
class Model:
    """A model, and how it is split."""

    decoder: Decoder
    files: str
    """The index or file of its weights; empty if there is none yet."""
    ranks: int
    cache_dtype: str
    weights: tuple[Divided, ...]

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of the cache on each device."""
        return self.decoder.cache_bytes(self.cache_dtype, self.ranks) * PAGE_TOKENS

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in the files."""
        return sum(weight.entry.size for weight in self.weights)

    @property
    def whole(self) -> tuple[str, ...]:
        """Tensors that would be split, but cannot be."""
        return tuple(weight.name for weight in self.weights if weight.undivided)


def read_model(given: str, ranks: int, cache_dtype: str = "") -> Model:
    """Read a model by its folder or its config.json: its weights from the headers of the files beside it, else from
    the config. Raises PlanError: HP104, HP405, HP421, HP422."""
    config = os.path.join(given, _CONFIG) if os.path.isdir(given) else given  # noqa: PTH112, PTH118
    decoder = read_config(config)
    decoder.require_ranks(ranks)
    dtype = cache_dtype or decoder.dtype
    if dtype not in BY_NAME:
        summary = f"there is no dtype '{dtype[:60]}' for the cache"
        raise PlanError(Diagnostic("HP104", summary, hint=meant_dtype(dtype[:60])))
    files = next((str(path) for path in _beside(config) if path.exists()), "")
    if files:
        entries_by_file = entries_of(files)
        _require_same(decoder, entries_by_file)
    else:
        entries_by_file = [(config, entry) for entry in decoder.entries()]
    stored = [tensor for tensor in tensors_of(entries_by_file, ranks) if tensor.entry.size]
    return Model(decoder, files, ranks, BY_NAME[dtype].name, tuple(stored))


def _beside(config: str) -> Iterator[Path]:
    folder = Path(config).parent
    yield folder / _INDEX
    yield folder / _WEIGHTS


def _require_same(decoder: Decoder, entries_by_file: Sequence[tuple[str, ArrayInFile]]) -> None:
    """Check that config and files have the same shapes for tensors of the same name. Raises PlanError (HP421)."""
    if decoder.is_quantized:
        return
    wanted = {entry.name: entry.shape for entry in decoder.entries()}
    there = {entry.name: (file, entry.shape) for file, entry in entries_by_file}
    for name, shape in wanted.items():
        if name in there and there[name][1] != shape:
            file, other = there[name]
            why = f"'{name}' is {list(shape)} by the config, {list(other)} in {file}"
            raise PlanError(Diagnostic("HP421", f"{decoder.source} is of another model than its files", why=why))
    if missing := next((name for name in wanted if name not in there), None):
        why = f"there is no '{missing}' in them"
        raise PlanError(Diagnostic("HP421", f"the files beside {decoder.source} are not all of the model", why=why))


def plan_text(model: Model, cache: int, staging: int, folder: str = ".", about: Sequence[str] = ()) -> str:
    """The plan, as `hipplan fmt` writes it. cache, staging: bytes for each device; 0: none.

    folder: where the plan will be. about: comment lines at its top.
    """
    text = "\n".join(_lines(model, cache, staging, folder, about)) + "\n"
    return canonical(load_yaml(StringIO(text), model.decoder.source))


def _lines(model: Model, cache: int, staging: int, folder: str, about: Sequence[str]) -> Iterator[str]:
    ranks = model.ranks
    name = Path(os.path.realpath(model.decoder.source)).parent.name
    yield from (f"# {line}" for line in about)
    yield "hipplan: 1"
    yield f"name: {quoted(printable(name) or 'model')}"
    yield ""
    yield "devices:"
    yield f"  gpu: {{count: {ranks}}}"
    yield ""
    if staging:
        yield "buffers:"
        yield f"  staging: {{each: gpu, kind: pinned, size: {format_size(staging)}, device: $(each)}}"
        yield ""
    yield "regions:"
    yield from _weights(model)
    if cache:
        yield from _cache(model, cache)
    if model.files:
        yield ""
        yield from contents_of(model.files, model.weights, ranks, folder)


def _weights(model: Model) -> Iterator[str]:
    """The lines for the weights, as few as the limits on repetition allow."""
    ranks, count = model.ranks, len(model.weights)
    lines = list(_patterns(model.weights, ranks))
    if (count + 1) * ranks > LIMITS["repetitions"]:
        lines = [_line(weight, weight.name, "", ranks) for weight in model.weights]
    values = sum(len(weight.shape) + 3 for weight in model.weights) * ranks
    if len(lines) < count or values <= LIMITS["repeated values"]:
        names = [("rank", "    each: gpu\n    device: $(each)")]
    else:
        names = [(f"rank.{rank}", f"    device: gpu.{rank}") for rank in range(ranks)]
    for name, device in names:
        yield (
            f"  {name}:"
            + f"{' ' * 30}# rank.0 on gpu.0" * (name == "rank")
            + ", and so on" * (name == "rank" and ranks > 1)
        )
        yield device
        yield "    tensors:"
        yield from (f"      {line}" for line in lines)


def _cache(model: Model, size: int) -> Iterator[str]:
    layers, two, tokens, heads, element = model.decoder.page_shape(PAGE_TOKENS, model.ranks)
    pages = size // model.page_bytes
    yield f"  kv:{' ' * 30}# {counted(pages, 'page')}, {counted(pages * tokens, 'token')}"
    yield "    each: gpu"
    yield "    device: $(each)"
    yield f"    size: {format_size(size)}"
    yield f"    tensors:{' ' * 20}# pages of {tokens} tokens: layer, key or value, token, head, element"
    shape = f"[-1, {layers}, {two}, {tokens}, {heads}, {element}]"
    yield f"      pages: {{dtype: {model.cache_dtype}, shape: {shape}}}"


def _patterns(tensors: Sequence[Divided], ranks: int) -> Iterator[str]:
    """The tensors, in order of first appearance: one line for all whose names differ only in numbers."""
    groups: dict[tuple[object, ...], list[Divided]] = {}
    for tensor in tensors:
        kind = (_NUMBER.sub("#", tensor.name), tensor.entry.dtype, tensor.shape, tensor.split, tensor.undivided)
        groups.setdefault(kind if "#" in kind[0] else (tensor.name,), []).append(tensor)
    for alike in groups.values():
        counts = _counts(alike)
        for tensor in alike[:1] if counts else alike:
            numbers = iter(_INDICES)
            name = _NUMBER.sub(lambda _: f"$({next(numbers)})", tensor.name) if counts else tensor.name  # noqa: B023
            each = ", ".join(f"{letter}: {count}" for letter, count in zip(_INDICES, counts, strict=False))
            yield _line(tensor, name, f"each: {{{each}}}, " if counts else "", ranks)


def _line(tensor: Divided, name: str, each: str, ranks: int) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return f"{name}: {{{each}dtype: {tensor.entry.dtype}, shape: [{shape}]}}{note_on(tensor, ranks)}"


def _counts(tensors: Sequence[Divided]) -> tuple[int, ...]:
    """The count of each number in the names, if all combinations from 0 on exist; else empty."""
    numbers = [tuple(map(int, _NUMBER.findall(tensor.name))) for tensor in tensors]
    if len(tensors) < 2 or not numbers[0] or len(numbers[0]) > len(_INDICES):
        return ()
    counts = tuple(max(column) + 1 for column in zip(*numbers, strict=True))
    texts = [text for tensor in tensors for text in _NUMBER.findall(tensor.name)]
    if prod(counts) != len(tensors) or any(text != str(int(text)) for text in texts):
        return ()
    return counts if {*numbers} == {*product(*map(range, counts))} else ()
