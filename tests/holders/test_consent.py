"""`hipplan replace` loses nothing that --lose does not name: what processes may have written, names and rights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import hipplan
from hipplan.cli.main import run
from hipplan.holders import requests
from tests.conftest import Simulator
from tests.holders.conftest import PLAN
from tests.holders.test_holders import Held, f32, until
from tests.holders.test_interrupts import command, state
from tests.pauses import Pause

CACHE = PLAN.replace("name: weights", "name: cached").replace("chunk: 2MiB", "chunk: 2MiB\n    attached: rw")


def generation() -> Any:
    return requests.status("w")["generations"][-1]["generation"]


def test_what_a_process_may_have_written_is_not_replaced_unasked(
    held: Held, plan: Path, sim: Simulator, capfd: Any
) -> None:
    """Not even when that process has ended, and when its bytes are in host memory."""
    plan.write_text(CACHE)
    held()
    assert run(["replace", "w", str(plan), "--quiet"]) == 0
    with hipplan.attach("w") as layout:
        layout.fill("model.a", 9)
    for asleep in (False, True):
        if asleep:
            assert run(["sleep", "w", "--wait", "--quiet"]) == 0
        capfd.readouterr()
        assert run(["replace", "w", str(plan)]) == 4
        errors = capfd.readouterr().err
        assert "HP423" in errors
        assert "region model: 4MiB that attached processes may have written" in errors
        assert "add --lose model" in errors
        assert generation() == 2
    assert run(["wake", "w", "--quiet"]) == 0
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.a", sim) == {9.0}
    assert run(["replace", "w", str(plan), "--lose", "mod*", "--quiet"]) == 0
    assert generation() == 3
    assert run(["replace", "w", str(plan), "--quiet"]) == 0  # nobody has written the new memory


def test_a_plan_that_lacks_a_name_or_a_right_is_refused(held: Held, tmp_path: Path, capfd: Any) -> None:
    held()
    other = tmp_path / "other.yaml"
    other.write_text(PLAN.replace("      b: {dtype: f32", "      c: {dtype: f32").replace("model.b", "model.c"))
    assert run(["replace", "w", str(other)]) == 4
    assert "tensor model.b: is not in the new plan" in capfd.readouterr().err
    other.write_text(PLAN.replace("gpu.1: r}", "gpu.1: none}"))
    assert run(["replace", "w", str(other), "--lose", "range"]) == 4
    assert "add --lose range --lose model" in capfd.readouterr().err
    assert generation() == 1
    assert run(["replace", "w", str(other), "--lose", "model", "--quiet"]) == 0


def test_a_process_that_may_write_waits_for_the_memory_that_replaces(
    folder: Path, plan: Path, tmp_path: Path, sim: Simulator
) -> None:
    plan.write_text(CACHE)
    pause = Pause(tmp_path, "hipMemMap@4")
    assert command("up", str(plan), "--name", "w", "--quiet", faults=pause.rule).wait() == 0
    plan.write_text(CACHE.replace("regions:\n", "regions:\n  more: {device: gpu.0, size: 2MiB}\n"))
    replacing = command("replace", "w", str(plan), "--var", "value=5", "--quiet")
    script = "import hipplan; print(hipplan.attach('w', access={}).read('model.a').max())"
    with pause.under_way():
        assert state() == "replacing"
        writer, reader = (
            subprocess.Popen([sys.executable, "-c", script.format(access)], stdout=subprocess.PIPE)
            for access in ("None", "'r'")
        )
        assert reader.communicate()[0] == b"1.0\n"
        assert writer.poll() is None
    assert replacing.wait() == 0
    assert writer.communicate()[0] == b"5.0\n"
    until(lambda: not requests.status("w")["attached"])
    assert run(["replace", "w", str(plan)]) == 4
    assert run(["down", "w", "--quiet"]) == 0
