"""A holder's memory with `size: fill`: what replaces it is as large, although both exist for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hipplan
from hipplan.cli.main import run
from hipplan.holders import requests
from tests.conftest import Simulator
from tests.holders.test_holders import Held

PLAN = """hipplan: 1
name: filled
vars: {value: 1}
regions:
  kv: {device: gpu.0, size: fill, reserve: 196600MiB, chunk: 2MiB, tensors: {t: {dtype: f32, shape: [-1]}}}
contents:
  kv.t: {value: $(value)}
"""


def test_a_replacement_is_as_large(held: Held, plan: Path, sim: Simulator) -> None:
    plan.write_text(PLAN)
    held()
    assert run(["replace", "w", str(plan), "--var", "value=2", "--quiet"]) == 0
    with hipplan.attach("w") as layout:
        assert layout["kv"].size == 8 * 2**20
        assert set(layout.read("kv.t").tolist()) == {2.0}


def test_a_replacement_for_which_there_is_no_room_is_refused(held: Held, plan: Path, capfd: Any) -> None:
    plan.write_text("hipplan: 1\nregions:\n  kv: {device: gpu.0, size: fill, reserve: 40%, chunk: 16GiB}\n")
    held()
    assert run(["replace", "w", str(plan), "--quiet"]) == 3
    assert "gpu.0 needs 112GiB" in capfd.readouterr().err
    assert requests.status("w")["generations"][-1]["generation"] == 1
