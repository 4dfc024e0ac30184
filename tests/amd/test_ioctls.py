"""Every plan while the ioctls below AMD's library fail in turn, judged by the driver's ledger.

Nothing is lost that is not reported, except for what AMD's library itself loses. Where it ends the process or waits for
ever, the next ioctl fails in another process.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PLANS, ROOT

ALL = 10**9
QUICK = "HIPPLAN_QUICK" in os.environ
SILENT_SECONDS = 20
"""What has not answered for so long does not come back."""
AMD_S_OWN = re.compile(r"hsa-runtime|rocclr|hipamd|HSA exception|HSAKMT|Memory access fault|terminate called|^$")
"""The last line of a process that AMD's library ended; some end without a word."""
PIECE = 16 * 2**20
"""No mapping of these plans' memory is larger that is lost with one call."""

POOLED = {"events": 2}
"""What AMD's library keeps for the next signal, though it uses it no more."""


def run(*arguments: str) -> tuple[list[dict[str, Any]], str, int | None]:
    """The lines of tests.amd.ioctls, its errors, and its exit code: None for one that was silent for too long."""
    with tempfile.TemporaryFile("w+") as errors:
        whole = [sys.executable, "-m", "tests.amd.ioctls", *arguments]
        process = subprocess.Popen(whole, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        written = b""
        while select.select([process.stdout], [], [], SILENT_SECONDS)[0]:
            if not (chunk := os.read(process.stdout.fileno(), 65536)):
                process.wait()
                break
            written += chunk
        code = process.poll()
        process.kill()
        process.wait()
        process.stdout.close()
        errors.seek(0)
        return [json.loads(line) for line in written.splitlines()], errors.read(), code


def outcomes(plan: Path) -> Iterator[dict[str, Any]]:
    """One for each ioctl that failed, in as many processes as it takes."""
    name, number, most = "get_version", 1, 1 if QUICK else ALL
    while True:
        lines, words, code = run(str(plan), name, str(number), str(most))
        yield from (line for line in lines if line.get("fired"))
        if code == 0:
            return
        if not lines:
            if "HP3" in words:
                pytest.skip("a plan for a larger machine, or of what this release does not have")
            raise AssertionError(words)
        if "fails" in lines[-1]:  # and nothing after it
            spoken = [line for line in words.splitlines() if not line.startswith("Warning: Resource leak")]
            yield lines[-1] | {"ended": code, "words": (spoken or [""])[-1]}
        name, number = lines[-1]["name"], lines[-1]["number"] + 1


def verdict(outcome: dict[str, Any]) -> str:
    """What an outcome counts as; raises AssertionError for one that must not be."""
    if "ended" in outcome:
        assert outcome["ended"] is None or outcome["ended"] < 0, outcome
        assert outcome["ended"] is None or AMD_S_OWN.search(outcome["words"]), outcome
        return "waited for ever" if outcome["ended"] is None else "ended by AMD's library"
    more = {name: count for name, count in outcome["more"].items() if count > POOLED.get(name, 0)}
    if not more:
        return "rolled back" if outcome["error"] else "made no difference"
    if outcome["error"] == "LeakError":
        return "reported as a leak"
    # AMD's library returned Success for what gives memory back, or forgot what its failed call had taken.
    bytes_lost = sum(count for name, count in more.items() if name.startswith(("gpu", "host")))
    assert bytes_lost <= PIECE, outcome
    lost = {"buffers", "imports", "host_used", "gpu 0", "gpu 1", "gpu 2"}
    assert set(more) <= (lost if outcome["error"] else lost | {"mappings"}), outcome
    assert more.get("buffers", 0) <= 2, outcome
    return "lost by AMD's library"


@pytest.mark.parametrize(
    "plan", [one for one in PLANS if not QUICK or one.stem == "quickstart"], ids=lambda plan: plan.stem
)
def test_nothing_is_lost_unreported(release: str, plan: Path, record_property: Callable[[str, object], None]) -> None:
    counts = Counter(verdict(outcome) for outcome in outcomes(plan))

    assert counts["rolled back"] > 0
    for name, count in counts.items():
        record_property(f"ioctls {name}", count)
