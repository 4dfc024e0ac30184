"""A TorchMemorySaver on the simulator, with a stand-in for PyTorch's allocator."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hipplan.torch_memory_saver import TorchMemorySaver
from hipplan.torch_memory_saver.pools import Pools
from tests.conftest import Simulator
from tests.torch_memory_saver.stand_in import Torch, put_in_place

GIB = 2**30


@pytest.fixture(autouse=True)
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a chunk is 2 MiB, which is quick to copy."""
    monkeypatch.setattr(Pools, "_memory", lambda self, device: 2 * GIB)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return put_in_place(monkeypatch)


@pytest.fixture
def saver(sim: Simulator, torch: Torch, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchMemorySaver]:
    """Fails the test whose tensors are gone, but whose memory is not."""
    monkeypatch.setenv("HIPPLAN_RUNTIME", "sim")
    saver = TorchMemorySaver()
    yield saver
    gc.collect()
    if (layout := saver._pools.layout) is not None:
        layout.close()
