"""Fixtures that start holders, and end them with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hipplan.holders import names, requests
from tests.started import run

PLAN = """hipplan: 1
name: weights
vars: {value: 1}
devices: {gpu: {count: 2}}
regions:
  model:
    device: gpu.0
    access: {gpu.0: rw, gpu.1: r}
    chunk: 2MiB
    tensors:
      a: {dtype: f32, shape: [512, 1024]}
      b: {dtype: f32, shape: [512, 1024]}
allocations:
  extra: {device: gpu.1, size: 2MiB}
reservations:
  range: {size: 8MiB, mappings: [{allocation: extra, at: 4MiB, access: {gpu.1: rw}}]}
contents:
  model.a: {value: $(value)}
  model.b: {value: 2.5}
  "range[0]": {value: 7, dtype: u8}
"""


@contextmanager
def holders_in(folder: Path) -> Iterator[Path]:
    """Make a folder the place of all holders; no holder may run there afterwards."""
    folder.mkdir(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIPPLAN_SOCKETS", str(folder / "hipplan"))
        patch.setenv("HIPPLAN_RUNTIME", "sim")
        yield folder
        running = [name for name, _, runs in names.known() if runs]
        for name in running:
            run(["down", name, "--force", "--quiet"])  # kills what does not answer, too
        assert running == []


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of the test's holders."""
    with holders_in(tmp_path / "run") as place:
        yield place


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture
def held(folder: Path, plan: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """held(*arguments): starts the holder "w" of the plan; returns its status."""

    def start(*arguments: str) -> dict[str, Any]:
        assert run(["up", str(plan), "--name", "w", "--quiet", *arguments]) == 0
        return requests.status("w")

    yield start
    if any(name == "w" and runs for name, _, runs in names.known()):
        assert run(["down", "w", "--force", "--quiet"]) == 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The process ID of a holder "w" for all tests of a module."""
    place = tmp_path_factory.mktemp("kept")
    (place / "plan.yaml").write_text(PLAN)
    with holders_in(place / "run"):
        assert run(["up", str(place / "plan.yaml"), "--name", "w", "--quiet", "--access", "rw"]) == 0
        yield requests.status("w")["pid"]
        assert run(["down", "w", "--quiet"]) == 0
