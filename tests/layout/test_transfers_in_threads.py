"""Threads that move bytes at once: each asks for the transfers of all, and only one of them may end each."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import hipplan
from tests.conftest import Simulator

THREADS = 3


def test_threads_that_copy_in_streams_of_their_own_end_each_transfer_once(
    sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    """Two threads found one transfer done, and both destroyed its event."""
    buffers: dict[str, Any] = {}
    for number in range(THREADS):
        buffers |= {f"pin{number}": {"kind": "pinned", "size": 4096}, f"dev{number}": {"kind": "device", "size": 4096}}
    plan = {"hipplan": 1, "buffers": buffers, "streams": {f"s{number}": {} for number in range(THREADS)}}
    failures: list[Exception] = []
    with caplog.at_level(logging.ERROR, "hipplan"), hipplan.apply(plan, runtime="sim", answer=False) as layout:

        def copies(number: int) -> None:
            try:
                for _ in range(1500):
                    layout.copy(f"pin{number}", f"dev{number}", stream=f"s{number}").wait()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=copies, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert caplog.records == []
