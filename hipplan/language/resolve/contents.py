"""Resolves contents, which may refer to buffers, regions, tensors and mappings."""

from __future__ import annotations

from collections.abc import Mapping

from hipplan.files.dtypes import BY_NAME, BYTE
from hipplan.files.values import encode
from hipplan.language.host import HOST
from hipplan.language.model import Content
from hipplan.language.model.plan import Plan
from hipplan.language.objects import Path, ResolvedBuffer, ResolvedRegion, ResolvedReservation
from hipplan.language.resolve.names import Names
from hipplan.units import full_size

_RIGHTS = ("none", "r", "rw")
_HAVE_BYTES = ("buffers", "regions", "reservations")


def resolve_contents(
    plan: Plan,
    buffers: Mapping[str, ResolvedBuffer],
    regions: dict[str, ResolvedRegion],
    reservations: dict[str, ResolvedReservation],
    names: Names,
) -> dict[str, Content]:
    """The contents, in the order written."""
    if not plan.contents:
        return {}
    mappings = [mapping for reservation in reservations.values() for mapping in reservation.mappings]
    access = {mapping.name: mapping.access for mapping in mappings}
    anywhere = {name: _anywhere(region) for name, region in regions.items()}
    access |= anywhere
    dtypes: dict[str, str] = dict.fromkeys((*buffers, *access), "")
    sizes = {name: size for name, buffer in buffers.items() if isinstance(size := buffer.spec.planned_size(), int)}
    for name, region in regions.items():
        for short, tensor in region.spec.tensors.items():
            dtypes[f"{name}.{short}"] = tensor.dtype
            sizes[f"{name}.{short}"] = 0 if -1 in tensor.shape else tensor.bytes_least
            own = tensor.device if tensor.device in region.devices else None
            access[f"{name}.{short}"] = region.access_to(own) if own else anywhere[name]
    whole = {
        mapping.name: reservation.path for reservation in reservations.values() for mapping in reservation.mappings
    }
    whole |= {f"{name}.{short}": region.path for name, region in regions.items() for short in region.spec.tensors}
    whole |= {name: region.path for name, region in regions.items()}
    # An object with errors may have wrong rights, so these are not checked.
    access = {name: rights for name, rights in access.items() if whole[name] not in names.wrong}
    out: dict[str, Content] = {}
    for name, spec in plan.contents.items():
        path: Path = ("contents", name)
        if name not in dtypes and any(names.is_elsewhere(noun, name.partition("[")[0]) for noun in _HAVE_BYTES):
            continue  # only the rank that makes it fills it
        known = _known(name, path, dtypes, names, key=True)
        if spec.copy_of is not None and not _known(spec.copy_of, (*path, "copy_of"), dtypes, names):
            continue
        if not known:
            continue
        if spec.copy_of is not None:
            if spec.copy_of == name:
                names.report("HP213", f"'{name}' cannot be a copy of itself", (*path, "copy_of"), hint="name another")
            _check_reachable(spec.copy_of, "r", buffers, access, (*path, "copy_of"), names)
            size, other = sizes.get(name, 0), sizes.get(spec.copy_of, 0)  # 0: the machine or a file decides it
            if size and other and size != other:
                summary = f"'{name}' has {full_size(size)}, '{spec.copy_of}' has {full_size(other)}"
                names.report("HP421", summary, (*path, "copy_of"), hint="a copy needs the same number of bytes")
        _check_reachable(name, "rw", buffers, access, path, names, key=True)
        _check(name, spec, dtypes[name], sizes.get(name, 0), path, names)
        buffer = buffers.get(name)
        if buffer is not None and getattr(buffer.spec, "read_only", False):
            why = "its file is registered for reading only"
            names.report("HP213", f"'{name}' cannot be written", path, key=True, why=why, hint="remove read_only")
        out[name] = spec
    return out


def _anywhere(region: ResolvedRegion) -> dict[str, str]:
    """The largest right of each device on any part of a region: the machine decides which bytes are in which part."""
    own = {holder: region.own(holder) for holder in region.gpus} if region.differs else {}
    more = {who: max(right, region.access.get(who, right), key=_RIGHTS.index) for who, right in own.items()}
    return region.access | more


def _check_reachable(
    name: str,
    right: str,
    buffers: Mapping[str, ResolvedBuffer],
    access: Mapping[str, Mapping[str, str]],
    path: Path,
    names: Names,
    *,
    key: bool = False,
) -> None:
    if name in buffers and not buffers[name].spec.planned_size():
        why = "its file, or the memory that is passed, decides it"
        names.report(
            "HP213", f"the plan does not give the size of '{name}'", path, key=key, why=why, hint="write its size:"
        )
    if name in access and not any(who != HOST and right in has for who, has in access[name].items()):
        does = "write" if right == "rw" else "read"
        hint = f"give its device {right} access"
        names.report("HP213", f"no device may {does} '{name}'", path, key=key, hint=hint)


def _known(name: str, path: Path, known: dict[str, str], names: Names, *, key: bool = False) -> bool:
    if name in known:
        return True
    base = name.partition("[")[0]
    unsure = ("reservations", base) in names.wrong or any(names.is_broken(noun, base) for noun in _HAVE_BYTES)
    if not unsure:
        advice = "give its copies the same rank:"
        owner = next(filter(None, (names.whose(noun, base, advice) for noun in _HAVE_BYTES)), "")
        hint = f"name a mapping: {name}[0]" if f"{name}[0]" in known else names.nearest(name, known)
        hint = owner or hint or "define it under buffers: or regions:"
        names.report("HP213", f"there is no buffer, region, tensor or mapping '{name[:60]}'", path, key=key, hint=hint)
    return False


def _check(name: str, spec: Content, dtype: str, size: int, path: Path, names: Names) -> None:
    if spec.value is None:
        return
    if dtype and spec.dtype is not None:
        names.report("HP107", f"'{name}' has its own dtype", (*path, "dtype"), hint="remove dtype")
        return
    try:
        pattern = encode(dtype or spec.dtype or BYTE.name, spec.value)
    except ValueError as error:
        names.report("HP105", f"'{name}' cannot be filled: {error}", (*path, "value"))
        return
    if size % len(pattern):
        summary = f"'{name}' has {size} bytes, not a multiple of the size of {BY_NAME[spec.dtype or BYTE.name]}"
        names.report("HP421", summary, path, key=True)
