"""What programs that start other processes use of the package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_xpu() -> bool:
    """False: hipplan has no runtime for Intel's GPUs."""
    return False


def get_binary_path_from_package(stem: str) -> Path:
    """A library to preload that changes nothing: the C library, which each process has. hipplan preloads none."""
    maps = Path("/proc/self/maps").read_text().split()
    return Path(next(word for word in maps if Path(word).name.startswith(("libc.so", "libc-"))))


@contextmanager
def change_env(key: str, value: str) -> Iterator[None]:
    """An environment variable has a value while this is entered."""
    before = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before
