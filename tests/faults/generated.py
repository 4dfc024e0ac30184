"""Plans made by a rule, not by hand: each seed gives one, and together they use every noun and most of the keys."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

DEVICES = ("gpu.0", "gpu.1")


def plan(seed: int, folder: Path) -> dict[str, Any]:
    """A plan of a dozen or two steps for two devices. It binds `caller` (64 KiB of memory) and `shared` (a descriptor).

    folder: where the file for a registered buffer is, data.bin.
    """
    r = random.Random(seed)
    out: dict[str, Any] = {"hipplan": 1, "name": f"generated-{seed}", "devices": {"gpu": {"count": 2}}}
    for noun in r.sample(NOUNS, 3):
        noun(r, out, folder)
    return out


def _device(r: random.Random) -> str:
    return r.choice(DEVICES)


def _access(r: random.Random) -> dict[str, str]:
    return {device: right for device in DEVICES if (right := r.choice(("none", "r", "rw", "rw"))) != "none"}


def _peers(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    both = [{"device": a, "peer": b} for a, b in (DEVICES, DEVICES[::-1])]
    out["peers"] = r.choice(["all", both[:1], both[1:]])
    target = {"kind": "device", "device": _device(r), "size": "1MiB"}  # for the links to be of use
    out.setdefault("buffers", {})["linked"] = target


def _memory(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    """Counted allocations in one reservation, each with a right of its own or the common one; room behind."""
    out.setdefault("allocations", {})["part"] = {
        "device": _device(r),
        "size": r.choice(["2MiB", "3MiB", 5_000_000]),
        "count": r.randint(1, 3),
        "granularity": r.choice(["minimum", "recommended"]),
        "shareable": r.choice(["none", "posix_fd"]),
    }
    mapping: dict[str, Any] = {"allocation": "part.*"}
    if r.random() < 0.5:
        mapping["access"] = _access(r)
    whole: dict[str, Any] = {"size": "64MiB", "access": _access(r), "mappings": [mapping]}
    if r.random() < 0.5:
        whole["alignment"] = r.choice(["2MiB", "4MiB"])
    out.setdefault("reservations", {})["whole"] = whole


def _aliases(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    """One allocation at two or three places, of which one is only its first part."""
    out.setdefault("allocations", {})["ring"] = {"device": _device(r), "size": "6MiB", "granularity": "minimum"}
    mappings: list[dict[str, Any]] = [{"allocation": "ring"} for _ in range(r.randint(1, 2))]
    part: dict[str, Any] = {"allocation": "ring", "size": r.choice(["2MiB", "4MiB"]), "access": _access(r)}
    out.setdefault("reservations", {})["twice"] = {
        "access": {"gpu.0": "rw", "gpu.1": "r"},
        "mappings": [*mappings, part],
    }


def _import(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    out.setdefault("allocations", {})["given"] = {"bind": "shared", "size": "2MiB", "shareable": "posix_fd"}
    mapping = {"allocation": "given", "access": _access(r)}
    out.setdefault("reservations", {})["theirs"] = {"mappings": [mapping]}


def _region(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    tensors = {"a": {"dtype": "bf16", "shape": [1024, 512]}, "b": {"dtype": "f32", "shape": [r.randint(1, 900_000)]}}
    region: dict[str, Any] = {"tensors": tensors}
    match r.choice(["one", "grows", "interleave", "blocks", "owners"]):
        case "one":
            region |= {"device": _device(r), "access": {"gpu.0": "rw", "gpu.1": "r"}}
        case "grows":
            region |= {"device": _device(r), "chunk": "2MiB", "reserve": "64MiB", "size": "6MiB"}
        case "interleave":
            region |= {"devices": ["gpu.*"], "spread": "interleave", "chunk": "2MiB", "size": "8MiB"}
        case "owners":  # in parts of unequal sizes
            tensors["a"]["device"], tensors["b"]["device"] = DEVICES
            access = {"owner": "rw", "others": r.choice(["none", "r"])}
            region |= {"devices": ["gpu.*"], "access": access, "chunk": "1MiB"}
            if r.random() < 0.5:
                region["seal"] = True
                out.setdefault("contents", {})["weights.a"] = {"value": 1.5}
        case _:
            region |= {"devices": ["gpu.0", "gpu.1"]}
    out.setdefault("regions", {})["weights"] = region


def _device_and_pinned(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    buffers = out.setdefault("buffers", {})
    buffers["scratch"] = {"kind": "device", "device": _device(r), "size": 12_345, "count": r.randint(1, 3)}
    buffers["staging"] = {
        "kind": "pinned",
        "size": "1MiB",
        "device": _device(r),
        "portable": r.random() < 0.5,
        "mapped": r.random() < 0.5,
        "write_combined": r.random() < 0.5,
    }


def _registered(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    buffers = out.setdefault("buffers", {})
    buffers["file"] = {"kind": "registered", "file": str(folder / "data.bin"), "read_only": r.random() < 0.5}
    buffers["fresh"] = {"kind": "registered", "anonymous": {"size": "64KiB"}, "device": _device(r)}
    buffers["caller"] = {"kind": "registered", "bind": "caller", "portable": True, "mapped": r.random() < 0.5}


def _managed(r: random.Random, out: dict[str, Any], folder: Path) -> None:
    """Advice on ranges, prefetches on both kinds of stream, attachment."""
    out.setdefault("streams", {})["copy"] = {"device": _device(r)}
    advice: list[dict[str, Any]] = [
        {"advise": "read_mostly", "range": {"at": 0, "size": "64KiB"}},
        {"advise": "preferred_location", "device": r.choice((*DEVICES, "host"))},
        {"advise": "accessed_by", "device": _device(r), "range": {"at": "128KiB"}},
        {"advise": "unset_accessed_by", "device": "gpu.0"},
    ]
    prefetch: list[dict[str, Any]] = [{"to": _device(r), "stream": "copy"}, {"to": "host", "range": {"at": "64KiB"}}]
    table: dict[str, Any] = {"kind": "managed", "size": "256KiB", "advice": r.sample(advice, r.randint(1, 4))}
    table["prefetch"] = r.sample(prefetch, r.randint(0, 2))
    attach = {"stream": "copy", "mode": r.choice(["global", "host", "single"])}
    inbox = {"kind": "managed", "size": "64KiB", "attach": r.choice(["global", "host"]), "attach_to": attach}
    out.setdefault("buffers", {}).update({"table": table, "inbox": inbox})


NOUNS = (_peers, _memory, _aliases, _import, _region, _device_and_pinned, _registered, _managed)
