"""Makes a plan for a checkpoint from the headers of its files, for `hipplan import safetensors`.

One region on each device, with every tensor in the order of the files, and contents that load it. With several
devices tensors are split as tensor parallel inference does, by the name of their module, if the dimension divides:

    rows (dimension 0)       q_proj k_proj v_proj gate_proj up_proj w1 w3 embed_tokens lm_head: weight and bias
    columns (dimension 1)    o_proj down_proj w2: weight
    whole, on every device   everything else
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from hipplan.errors import Diagnostic, PlanError, is_text, printable
from hipplan.files import strict_json
from hipplan.files.dtypes import BY_NAME
from hipplan.files.tensorfiles import ArrayInFile, FileProblem, Files, is_safetensors
from hipplan.language.base import NAME_PATTERN
from hipplan.language.canonical import canonical
from hipplan.language.source import load_yaml
from hipplan.plain import counted

BY_ROWS = frozenset(["q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3", "embed_tokens", "lm_head"])
BY_COLUMNS = frozenset(["o_proj", "down_proj", "w2"])
_NAME_MAX = 200
_RESERVED = frozenset(("null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", "each"))


@dataclass(frozen=True, slots=True)
class Divided:
    """One tensor of the plan."""

    name: str
    entry: ArrayInFile
    shape: tuple[int, ...]
    """The shape on each device."""
    split: str
    """rows, columns, or empty for whole."""
    undivided: int = 0
    """If the tensor would be split but the devices do not divide the dimension: its elements; else 0."""


class Imported(NamedTuple):
    """A plan for a checkpoint."""

    text: str
    whole: tuple[str, ...]
    """Tensors that would be split, but are whole on every device: the number of devices does not divide them."""
    split: int
    """The number of tensors that are split."""
    tensors: int
    """The number of tensors that have bytes."""
    size: int
    """Bytes of all tensors."""
    size_each: int
    """Bytes of all tensors on each device."""


def plan_of(source: str, ranks: int = 1, folder: str = ".") -> Imported:
    """A plan that has room for a checkpoint and loads it, as `hipplan fmt` would write it.

    source: a .safetensors file or a .safetensors.index.json. ranks: how many devices. folder: where the plan will
    be, from which it names the files. Raises PlanError: HP405, HP421, HP422 for the files, HP104 for a dtype.
    """
    tensors = tensors_of(entries_of(source), ranks)
    text = "\n".join(_written(source, tensors, ranks, folder)) + "\n"
    stored = [tensor for tensor in tensors if tensor.entry.size]
    return Imported(
        text=canonical(load_yaml(StringIO(text), source)),
        whole=tuple(tensor.name for tensor in tensors if tensor.undivided),
        split=sum(bool(tensor.split) for tensor in tensors),
        tensors=len(stored),
        size=sum(tensor.entry.size for tensor in stored),
        size_each=size_each(stored, ranks),
    )


def size_each(tensors: Sequence[Divided], ranks: int) -> int:
    """Bytes of tensors on each of so many devices."""
    return sum(tensor.entry.size // (ranks if tensor.split else 1) for tensor in tensors)


def entries_of(source: str) -> list[tuple[str, ArrayInFile]]:
    """(file, tensor) of every tensor of a checkpoint. Raises PlanError: HP405, HP421, HP422."""
    if not is_safetensors(source):
        hint = "pass model.safetensors or model.safetensors.index.json"
        is_file = os.path.isfile(source)  # noqa: PTH113  # Path.is_file() raises for a name that is too long
        what = "is neither a .safetensors file nor an index of them" if is_file else "is not a file"
        raise PlanError(Diagnostic("HP422", f"{source} {what}", hint=hint))
    files = Files()
    try:
        entries_by_file = [(file.path, entry) for file, entry in files.entries(source)]
    except FileProblem as problem:
        raise PlanError(problem.diagnostic()) from None
    finally:
        files.close()
    if not any(entry.size for _, entry in entries_by_file):
        why = (
            f"it has {len(entries_by_file)} tensors, none of them with a byte"
            if entries_by_file
            else "it has no tensors"
        )
        raise PlanError(Diagnostic("HP421", f"no plan can be made of {source}", why=why))
    return entries_by_file


def tensors_of(entries_by_file: Sequence[tuple[str, ArrayInFile]], ranks: int) -> list[Divided]:
    """The tensors as they are on each device. Raises PlanError: HP104, HP421."""
    names = _names([entry for _, entry in entries_by_file])
    return [_divided(entry, ranks, name, file) for (file, entry), name in zip(entries_by_file, names, strict=True)]


def _divided(entry: ArrayInFile, ranks: int, name: str, file: str) -> Divided:
    if entry.dtype not in BY_NAME:
        summary = f"there is no dtype '{entry.dtype}', of which '{entry.name[:60]}' in {file} is"
        raise PlanError(Diagnostic("HP104", summary))
    if not entry.name:
        why = f"its {entry.dtype} tensor of the shape {list(entry.shape)} has none"
        raise PlanError(Diagnostic("HP421", "a plan cannot load a tensor without a name", why=why, hint="name it"))
    split = _split(entry) if ranks > 1 else ""
    if not split:
        return Divided(name, entry, entry.shape, "")
    shape, dimension = list(entry.shape), int(split == "columns")
    if shape[dimension] % ranks:
        return Divided(name, entry, entry.shape, "", shape[dimension])
    shape[dimension] //= ranks
    return Divided(name, entry, tuple(shape), split)


def _split(entry: ArrayInFile) -> str:
    """How a tensor with this name is split: rows, columns, or empty for whole."""
    *_, module, what = ("", "", *entry.name.split("."))
    if module in BY_ROWS and what in ("weight", "bias") and entry.shape:
        return "rows"
    return "columns" if module in BY_COLUMNS and what == "weight" and len(entry.shape) > 1 else ""


def _names(entries: Sequence[ArrayInFile]) -> Iterator[str]:
    """Names for the tensors in the plan: their own if a plan allows it, else a similar unique one."""
    taken: set[str] = set()
    for entry in entries:
        name = entry.name
        if not re.match(NAME_PATTERN, name) or name.endswith("\n") or len(name) > _NAME_MAX or name in taken:
            name = ".".join(part or "_" for part in re.sub(r"[^A-Za-z0-9_.-]", "_", name[:_NAME_MAX]).split("."))
            name = name if re.match("[A-Za-z_]", name) else f"_{name}"
        if name in taken:
            name = f"{name}.{hashlib.sha256(entry.name.encode()).hexdigest()[:12]}"
        taken.add(name)
        yield name


def _written(source: str, tensors: Sequence[Divided], ranks: int, folder: str) -> Iterator[str]:
    stored = [tensor for tensor in tensors if tensor.entry.size]
    size = sum(tensor.entry.size for tensor in stored)
    summary = f"{counted(len(stored), 'tensor')}, {size} bytes"
    yield f"# {summary}. Written by hipplan import safetensors; docs/contents.md says how."
    yield "hipplan: 1"
    yield f"name: {quoted(printable(Path(os.path.realpath(source)).parent.name) or 'checkpoint')}"
    yield ""
    yield "devices:"
    yield f"  gpu: {{count: {ranks}}}"
    yield ""
    yield "regions:"
    yield "  rank:" + " " * 30 + "# rank.0 on gpu.0" + ", and so on" * (ranks > 1)
    yield "    each: gpu"
    yield "    device: $(each)"
    yield "    tensors:"
    for tensor in stored:
        shape = ", ".join(map(str, tensor.shape))
        yield f"      {_key(tensor.name)}: {{dtype: {tensor.entry.dtype}, shape: [{shape}]}}{note_on(tensor, ranks)}"
    for tensor in tensors:
        if not tensor.entry.size:
            yield f"      # {quoted(tensor.entry.name)} is empty"
    yield ""
    yield from contents_of(source, stored, ranks, folder)


def note_on(tensor: Divided, ranks: int) -> str:
    """A comment on how it is split, for the end of its line."""
    if tensor.undivided:
        return f"  # whole: {ranks} does not divide {tensor.undivided}"
    return f"  # {tensor.split}" if tensor.split else ""


def contents_of(source: str, stored: Sequence[Divided], ranks: int, folder: str) -> Iterator[str]:
    """The lines of a plan that load the tensors."""
    file = Path(os.path.realpath(source))  # Path.resolve() raises for links that go round in circles
    try:
        shown = str(file.relative_to(os.path.realpath(folder)))
    except ValueError:  # not below the plan's folder
        shown = str(file)
    yield "contents:"
    part = ", part: $(each), parts: " + str(ranks) if ranks > 1 else ""
    common = f"{{each: {ranks}, file: {quoted(shown)}{part}"
    if all(tensor.name == tensor.entry.name for tensor in stored):
        yield f"  rank: {common}}}"
        return
    for tensor in stored:
        yield f"  rank.$(each).{tensor.name}: {common}, tensor: {quoted(tensor.entry.name)}}}"


def _key(name: str) -> str:
    return quoted(name) if name in _RESERVED else name


def quoted(text: str) -> str:
    """A quoted scalar for YAML, without expressions in it. Raises PlanError for invalid Unicode (HP405)."""
    if not is_text(text):
        hint = "rename it; a plan in the folder of its files needs no more than their own names (-o FOLDER/plan.yaml)"
        raise PlanError(Diagnostic("HP405", f"'{text}' is not text, and no plan can hold it", hint=hint))
    return strict_json.dumps(text.replace("$(", "$$("))
