"""The instruction set of a device: one answer from validate, preview, lock and apply."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipplan.cli.main import run
from tests.unit.test_arch import FULL


@pytest.mark.parametrize(
    ("arch", "code"),
    [("gfx942", 0), (FULL, 0), ("gfx942:xnack-:sramecc+", 0), ("gfx942:xnack+", 3), ("gfx90a", 3), ("sm_90", 3)],
)
def test_validate_lock_and_apply_agree(arch: str, code: int, tmp_path: Path) -> None:
    """The profile sim-2 names gfx942 and says that xnack is off; the simulator names all features."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(f'hipplan: 1\ndevices: {{gpu: {{arch: "{arch}"}}}}\nbuffers: {{b: {{kind: device, size: 4096}}}}\n')
    apply = ["apply", str(plan), "--runtime", "sim", "--machine", "sim-2", "--once", "--quiet"]
    lock = str(tmp_path / "plan.lock")
    lines = [
        ["validate", str(plan), "--machine", "sim-2"],
        ["preview", str(plan), "--machine", "sim-2"],
        ["lock", str(plan), "--machine", "sim-2", "-o", lock],
        apply,
    ]

    assert [run(line) for line in lines] == [code] * len(lines)
    assert code or run([*apply, "--locked", lock]) == 0
