"""A C program, compiled once, and the holders that it attaches to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.c.programs import Program, build
from tests.holders.conftest import folder, held, kept, plan

__all__ = ["folder", "held", "kept", "plan"]


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled program."""
    return build(tmp_path_factory.mktemp("program"))


@pytest.fixture
def program(path: Path) -> Iterator[Program]:
    """The program, running; it must end well."""
    with Program(path) as running:
        yield running
