"""Keys and values of other tools -> their names in a plan. Used only for hints in messages."""

from __future__ import annotations

import re
from collections.abc import Container, Hashable, Iterable

from hipplan.kinds.plans import KINDS

_KEYS = {
    **dict.fromkeys(("type", "class"), ("kind", "dtype")),
    **dict.fromkeys(("data_type", "datatype"), ("dtype",)),
    **dict.fromkeys(("bytes", "nbytes", "length", "len", "capacity", "memory", "size_bytes", "bytesize"), ("size",)),
    **dict.fromkeys(("id", "index", "number", "device_id", "rank"), ("ordinal",)),
    **dict.fromkeys(("replicas", "num", "number_of"), ("count",)),
    **dict.fromkeys(("rocm", "hip_version", "version"), ("hip", "hipplan")),
    **dict.fromkeys(("apiVersion", "api_version"), ("hipplan",)),
    **dict.fromkeys(("from", "src", "source"), ("device", "file", "copy_of")),
    **dict.fromkeys(("to", "dst", "target"), ("peer",)),
    "device": ("to", "ordinal"),
    **dict.fromkeys(("gpu", "on", "location", "placement"), ("device",)),
    **dict.fromkeys(("gpus", "on_devices"), ("devices",)),
    **dict.fromkeys(("for_each", "foreach", "repeat", "loop", "matrix"), ("each",)),
    **dict.fromkeys(("grow", "growth", "max", "max_size", "limit"), ("reserve",)),
    **dict.fromkeys(("fill", "init", "fill_value"), ("value",)),
    **dict.fromkeys(("path", "filename", "load"), ("file",)),
    **dict.fromkeys(("permissions", "rights", "flags"), ("access",)),
    **dict.fromkeys(("readonly", "frozen", "immutable", "freeze"), ("seal",)),
    **dict.fromkeys(("variables", "locals", "parameters", "params", "values"), ("vars",)),
    **dict.fromkeys(("align", "alignment_bytes"), ("alignment",)),
}
_VALUES = {
    **dict.fromkeys(("gpu", "hbm", "vram", "cuda", "hip"), "device"),
    **dict.fromkeys(("host", "cpu", "page_locked", "pagelocked"), "pinned"),
    **dict.fromkeys(("unified", "uvm", "shared"), "managed"),
    **dict.fromkeys(("w", "on", "yes", "true"), "r or rw"),
    **dict.fromkeys(("wr", "write", "readwrite", "read_write", "read-write", "all"), "rw"),
    **dict.fromkeys(("read", "ro", "readonly", "read_only", "read-only"), "r"),
    "set_read_mostly": "read_mostly",
    "set_preferred_location": "preferred_location",
    "set_accessed_by": "accessed_by",
    "set_coarse_grain": "coarse_grain",
}
_ADDED = {
    "hipplan": "hipplan: 1",
    "kind": f"kind:, one of {', '.join(KINDS[:-1])} and {KINDS[-1]}",
    "size": "size: 1MiB",
    "dtype": "dtype: bf16",
    "shape": "shape: [16, 256]",
    "to": "to: gpu.0",
    "device": "device: gpu.0",
    "peer": "peer: gpu.1",
}
SPACE_AFTER_COLON = "put a space after the colon"
_BOUNDS = {
    "ge": "must be at least {}",
    "le": "must be at most {}",
    "gt": "must be more than {}",
    "lt": "must be less than {}",
}


def meant_key(name: str, known: Iterable[str], beside: Container[Hashable]) -> str:
    """The hint for a key that does not exist, given the keys that are written; empty if there is none."""
    keys = set(known)
    key, colon, value = name.partition(":")
    if colon and key in keys:
        return f"{SPACE_AFTER_COLON}: {key}: {value}".rstrip()
    if re.match(r"[0-9]", name):
        return "inside braces a comma ends a value: write 1.5GiB with a point"
    meant = next((key for key in _KEYS.get(name, ()) if key in keys), "")
    if meant in beside:
        return f"remove it: {meant}: has this already"
    return f"write {meant}:" if meant else ""


def meant_value(value: object, known: Iterable[str]) -> str:
    """The same for a value that is not one of the choices."""
    meant = _VALUES.get(str(value).lower(), "")
    return f"write {meant}" if meant and set(meant.split(" or ")) <= set(known) else ""


def added(key: str) -> str:
    """How a key that is missing is written."""
    return f"add {_ADDED.get(key, f'{key}:')}"


def bounds(context: dict[str, object]) -> str:
    """What a number must be, in words, from the bounds of its field; empty without bounds."""
    return next((words.format(context[key]) for key, words in _BOUNDS.items() if key in context), "")
