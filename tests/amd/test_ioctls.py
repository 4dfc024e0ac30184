"""Every plan while the ioctls below AMD's library fail in turn, judged by the driver's ledger.

Nothing is lost that is not reported, except for what AMD's library itself loses. Where it ends the process or waits for
ever, the next ioctl fails in another process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PLANS, ROOT

QUICK = "HIPPLAN_QUICK" in os.environ
SILENT_SECONDS = 20
"""What has not answered for so long does not come back."""
AMD_S_OWN = re.compile(r"hsa-runtime|rocclr|hipamd|HSA exception|HSAKMT|Memory access fault|terminate called|^$")
"""The last line of a process that AMD's library ended; some end without a word."""
PIECE = 16 * 2**20
"""No mapping of these plans' memory is larger that is lost with one call."""


def outcomes(plan: Path, which: str) -> Iterator[dict[str, Any]]:
    """One for each ioctl that failed, in as many processes as it takes."""
    first, last = 0, -1
    while first != last:
        last = first
        arguments = [sys.executable, "-m", "tests.amd.ioctls", str(plan), str(first), which]
        try:
            ran = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=SILENT_SECONDS)
            out, words, code = ran.stdout, ran.stderr, ran.returncode
        except subprocess.TimeoutExpired as waited:
            out, words, code = (waited.stdout or b"").decode(), (waited.stderr or b"").decode(), None
        lines = [json.loads(line) for line in out.splitlines()]
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
        first = lines[-1]["number"] + 1


def verdict(outcome: dict[str, Any]) -> str:
    """What an outcome counts as; raises AssertionError for one that must not be."""
    if "ended" in outcome:
        assert outcome["ended"] is None or outcome["ended"] < 0, outcome
        assert outcome["ended"] is None or AMD_S_OWN.search(outcome["words"]), outcome
        return "waited for ever" if outcome["ended"] is None else "ended by AMD's library"
    more = {name: count for name, count in outcome["more"].items() if count > 0}
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
    counts = Counter(verdict(outcome) for outcome in outcomes(plan, "each" if QUICK else "all"))

    assert counts["rolled back"] > 0
    for name, count in counts.items():
        record_property(f"ioctls {name}", count)
