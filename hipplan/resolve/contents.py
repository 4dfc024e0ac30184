"""What contents refer to: buffers, regions, tensors and mappings, and nothing else."""

from __future__ import annotations

from collections.abc import Container

from hipplan.dtypes import BYTE
from hipplan.errors import suggest
from hipplan.model import Content, Plan
from hipplan.objects import Path, ResolvedBuffer, ResolvedContent, ResolvedRegion, ResolvedReservation
from hipplan.resolve.names import Names
from hipplan.units import format_size
from hipplan.values import encode


def resolve_contents(
    plan: Plan,
    buffers: dict[str, ResolvedBuffer],
    regions: dict[str, ResolvedRegion],
    reservations: dict[str, ResolvedReservation],
    names: Names,
    broken: frozenset[str],
) -> tuple[ResolvedContent, ...]:
    """In the order written."""
    if not plan.contents:
        return ()
    mappings = (mapping.name for reservation in reservations.values() for mapping in reservation.mappings)
    dtypes: dict[str, str] = dict.fromkeys((*buffers, *regions, *mappings), "")
    sizes = {name: buffer.spec.size or 0 for name, buffer in buffers.items()}
    for name, region in regions.items():
        for short, tensor in region.spec.tensors.items():
            dtypes[f"{name}.{short}"] = tensor.dtype
            sizes[f"{name}.{short}"] = 0 if -1 in tensor.shape else tensor.bytes_least
    out = []
    for name, spec in plan.contents.items():
        path: Path = ("contents", name)
        if not _known(name, path, dtypes, names, broken, key=True):
            continue
        if spec.copy_of is not None:
            if not _known(spec.copy_of, (*path, "copy_of"), dtypes, names, broken):
                continue
            if spec.copy_of == name:
                names.report("HP213", f"'{name}' cannot be a copy of itself", (*path, "copy_of"), hint="name another")
            size, other = sizes.get(name, 0), sizes.get(spec.copy_of, 0)  # 0: the machine, or a file, tells
            if size and other and size != other:
                told = f"'{name}' has {format_size(size)}, '{spec.copy_of}' {format_size(other)}"
                names.report("HP421", told, (*path, "copy_of"), hint="a copy needs as many bytes")
        _check(name, spec, dtypes[name], path, names)
        buffer = buffers.get(name)
        if buffer is not None and getattr(buffer.spec, "read_only", False):
            why = "its file is registered for reading only"
            names.report("HP213", f"'{name}' cannot be written", path, key=True, why=why, hint="remove read_only")
        out.append(ResolvedContent(name, spec, path))
    return tuple(out)


def _known(
    name: str, path: Path, known: dict[str, str], names: Names, broken: Container[str], *, key: bool = False
) -> bool:
    if name in known:
        return True
    if not broken:  # else it may be one of those that are wrong themselves
        hint = f"name a mapping: {name}[0]" if f"{name}[0]" in known else suggest(name, known)
        hint = hint or "define it under buffers: or regions:"
        names.report("HP213", f"there is no buffer, region, tensor or mapping '{name[:60]}'", path, key=key, hint=hint)
    return False


def _check(name: str, spec: Content, dtype: str, path: Path, names: Names) -> None:
    if spec.value is None:
        return
    if dtype and spec.dtype is not None:
        names.report("HP107", f"'{name}' has a dtype of its own", (*path, "dtype"), hint="remove dtype")
        return
    try:
        encode(dtype or spec.dtype or BYTE.name, spec.value)
    except ValueError as error:
        names.report("HP105", f"'{name}' cannot be filled: {error}", (*path, "value"))
