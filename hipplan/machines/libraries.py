"""Opening shared libraries with HIP's C ABI, and finding ROCm's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hipplan import _core
from hipplan.errors import Diagnostic, RuntimeUnavailable
from hipplan.machines.elf import fault_of
from hipplan.machines.rocm_folders import AMD_NAMES, SYSTEM_ROCM, abi_fault, wheel_folders

SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64")
"""Where distributions put ROCm's library."""
_opened_by: int | None = None
"""The process that opened a runtime; None before that."""
_loaded: set[str] = set()
"""Paths of runtimes that were opened. They stay loaded, and the linker reads no file for one again."""


def were_opened_elsewhere() -> bool:
    """Whether this process is a forked child of one that has opened a runtime."""
    return _opened_by not in (None, os.getpid())


def open_amd() -> _core.Runtime:
    """ROCm's library: the copy this process has loaded already, else the first that opens. Calls nothing in it.

    Raises RuntimeUnavailable (HP407) with what was looked at.
    """
    candidates = list(dict.fromkeys(_amd_candidates()))
    reasons = list(_unknown_abis())
    for candidate in candidates:
        try:
            return _opened(candidate)
        except _core.RuntimeUnusable as error:
            # Only a bare name is skipped silently: a file that exists may lack a library that it needs.
            if not str(error).startswith(f"{candidate}: cannot open shared object") or os.sep in candidate:
                reasons.append(str(error))
    why = "looked at " + ", ".join(candidates)
    root = os.environ.get("ROCM_PATH")
    if root and not any(Path(path).is_relative_to(root) for path in (*candidates, *reasons)):
        why += f"; ROCM_PATH is {root}, which has no lib/libamdhip64.so"
    raise RuntimeUnavailable(
        Diagnostic(
            "HP407",
            reasons[0] if reasons else "no HIP library was found",
            why=why,
            hint="install ROCm 6.1 or later, or set ROCM_PATH; --runtime sim needs no GPU",
        )
    )


def amd_library() -> Path:
    """The file of ROCm's library that open_amd() would open, without opening it. Raises RuntimeUnavailable (HP407)."""
    for candidate in _amd_candidates():
        if file := _file_of(candidate):
            return file
    hint = "install ROCm, set ROCM_PATH, or name the library: --runtime /opt/rocm/lib/libamdhip64.so.7"
    summary = next(_unknown_abis(), "no ROCm library was found")
    raise RuntimeUnavailable(Diagnostic("HP407", summary, hint=hint))


def _file_of(candidate: str) -> Path | None:
    """The file that the linker would open for a path or a bare name, as far as that can be known without it."""
    searched: tuple[str, ...] = ("",)
    if os.sep not in candidate:
        searched = (*filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")), *SYSTEM_FOLDERS)
    paths = (Path(folder, candidate) for folder in searched)
    return next((path.absolute() for path in paths if path.is_file()), None)


def _amd_candidates() -> Iterator[str]:
    # A second copy would not share pointers with the first (PyTorch for ROCm brings its own).
    yield from _core.loaded_libraries("libamdhip64.so")
    for folder in _amd_folders():
        for name in AMD_NAMES:
            path = Path(folder, name)
            if path.is_symlink() or path.exists():  # a broken link is reported
                yield str(path)
    yield from AMD_NAMES


def _amd_folders() -> list[Path]:
    folders = [os.environ.get("ROCM_PATH"), *wheel_folders(), SYSTEM_ROCM]
    return [Path(folder, "lib") for folder in dict.fromkeys(filter(None, folders))]


def _unknown_abis() -> Iterator[str]:
    """What is not tried, and why."""
    for folder in _amd_folders():
        for path in sorted(folder.glob("libamdhip64.so.*")):
            if fault := abi_fault(path.name):
                yield f"{path} {fault}"


def _opened(path: str) -> _core.Runtime:
    """Raises RuntimeUnusable."""
    global _opened_by
    if path not in _loaded and (file := _file_of(path)) and (fault := fault_of(str(file))):
        raise _core.RuntimeUnusable(f"{file} {fault}")
    runtime = _core.Runtime.open(path)
    _opened_by = os.getpid()
    _loaded.add(path)
    return runtime


def open_library(path: str) -> _core.Runtime:
    """Raises RuntimeUnavailable (HP407)."""
    try:
        return _opened(path)
    except _core.RuntimeUnusable as error:
        raise RuntimeUnavailable(Diagnostic("HP407", str(error))) from None
