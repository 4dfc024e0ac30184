"""Finds every copy of a driver's library that this process could load. Reads the files, loads none."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hipplan.machines.doctor.report import Finding
from hipplan.machines.elf import fault_of
from hipplan.machines.place import System
from hipplan.machines.rocm_folders import SYSTEM_ROCM, abi_fault, wheel_folders

_NAMES = {"amd": "libamdhip64.so", "cuda": "libcuda.so"}
_USUAL = ("/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
          "/usr/lib/aarch64-linux-gnu", "/usr/lib/wsl/lib", "/usr/lib", "/usr/local/lib",
          "/usr/local/nvidia/lib64")  # fmt: skip
_REMOVE = "remove it, or what puts it on the path"
_MOST = 64
"""At most so many copies are listed."""


class LibraryFile(NamedTuple):
    """One library on disk; several links may lead to it."""

    family: str
    path: str
    """The path with links resolved."""
    found_as: str
    """The first path at which it was found."""
    version: str
    """The version in the file's name, or empty."""
    fault: str
    """Why it cannot be loaded, such as "is cut off"; empty if it can."""


def copies(place: System, folders: Mapping[str, str] | None = None) -> list[LibraryFile]:
    """The copies, in the order in which hipplan and the dynamic linker search. folders: of packages, for tests."""
    by_path: dict[str, LibraryFile] = {}
    for folder in _folders(place, folders):
        for family, name in _NAMES.items():
            for path in _files(folder, name):
                real = os.path.realpath(path)
                if real not in by_path and len(by_path) < _MOST:
                    version = re.search(r"\.so\.(\d[\d.]*)", Path(real).name)
                    fault = fault_of(real) or abi_fault(path.name)
                    by_path[real] = LibraryFile(family, real, str(path), version[1] if version else "", fault)
    return list(by_path.values())


def examined(place: System, copies_found: list[LibraryFile]) -> Iterator[Finding]:
    amd = [copy for copy in copies_found if copy.family == "amd" and not copy.fault]
    if len(amd) > 1:
        shown = ", ".join(copy.path for copy in amd)
        why = "two copies in one process do not know each other's memory (views of one are refused in the other)"
        do = "import PyTorch, or what else brings a copy, before hipplan opens a runtime: then hipplan takes that one"
        yield Finding("warning", "libraries.amd", f"{len(amd)} copies of ROCm's library: {shown}", do, why)
    for copy in copies_found:
        if copy.fault:
            summary = f"{copy.path} {copy.fault}"
            do = "use a hipplan that knows it, or install ROCm 7" if abi_fault(Path(copy.found_as).name) else _REMOVE
            yield Finding("warning", f"libraries.{copy.family}", summary, do)
    if (root := place.environ.get("ROCM_PATH")) and not _files(Path(root, "lib"), _NAMES["amd"]):
        summary = f"ROCM_PATH={root[:80]}: there is no lib/libamdhip64.so"
        yield Finding("warning", "environment.ROCM_PATH", summary, "set it to where ROCm is, or unset it")


def _folders(place: System, packages: Mapping[str, str] | None) -> Iterator[Path]:
    for folder in place.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder)
    if root := place.environ.get("ROCM_PATH"):
        yield Path(root, "lib")
    for folder in wheel_folders() if packages is None else packages.values():
        yield Path(folder, "lib")
    yield place.path(SYSTEM_ROCM) / "lib"
    for other in place.matches("/opt", "rocm-*"):
        yield other / "lib"
    for line in place.matches("/etc/ld.so.conf.d", "*.conf"):
        for folder in place.text(f"/etc/ld.so.conf.d/{line.name}").splitlines():
            if folder.startswith("/"):
                yield place.path(folder.strip())
    for folder in _USUAL:
        yield place.path(folder)


def _files(folder: Path, name: str) -> list[Path]:
    """The library's files and links in a folder. The shortest name, which the linker opens, comes first."""
    try:
        paths = [path for path in folder.glob(f"{name}*") if re.fullmatch(r"\.so(\.\d+)*", path.name[len(name) - 3 :])]
        return sorted((path for path in paths if path.exists()), key=lambda path: len(path.name))
    except (OSError, ValueError):
        return []
