"""One run reports all errors: an error hides no error of another object, and causes no false ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

CASES = {
    "a name, a size, arithmetic and the machine": (
        """hipplan: 1
allocations:
  zero: {size: 0}
  lost: {device: gpu.o, size: 900GiB}
  huge: {device: gpu.0, size: 900GiB}
reservations:
  r: {mappings: [{allocation: huge, at: 1KiB, access: {gpu.0: rw}}]}
  s: {mappings: [{allocation: zero, access: {gpu.0: rw}}, {allocation: lost, access: {gpu.0: rw}}]}
""",
        ["3:HP105", "4:HP201", "5:HP301", "7:HP302"],
    ),
    "devices that the machine does not have": (
        """hipplan: 1
devices: {gpu: {count: 3}}
allocations:
  huge: {device: gpu.0, size: 900GiB}
  far: {device: gpu.2, size: 900GiB}
reservations:
  both:
    mappings:
      - {allocation: huge, at: 1KiB, access: {gpu.0: rw, gpu.2: r}}
      - {allocation: far, at: 1TiB, access: {gpu.0: rw, gpu.2: rw}}
buffers:
  table: {kind: managed, size: 1MiB, prefetch: [{to: gpu.2}]}
regions:
  wide: {devices: [gpu.*], size: 1GiB}
contents:
  table: {value: 0}
  wide: {value: 0}
  "both[1]": {value: 0}
""",
        ["2:HP310", "4:HP301", "9:HP302"],
    ),
    "variables that are wrong": (
        """hipplan: 1
vars: {layers: 1.5, twice: $(layers * 2), other: 2}
devices: {gpu: {count: $(layers)}}
allocations:
  a: {device: gpu.1, size: $(twice)}
  b: {size: "$(other * 0)"}
  c: {size: $(unknown)}
  d.$(i): {each: {i: $(layers)}, size: 1MiB}
reservations:
  r: {mappings: [{allocation: d.7}, {allocation: c}, {allocation: nowhere}]}
""",
        ["2:HP103", "6:HP105", "7:HP021", "10:HP202"],
    ),
    "an each that cannot be read": (
        """hipplan: 1
allocations:
  a: {each: nowhere, device: $(each), size: 1XiB}
  b.$(x): {each: {x: 1.5}, size: $(x * 2 + index), devise: gpu.0}
reservations:
  r:
    mappings:
      - {each: rank, allocation: lost, siz: 1}
      - {allocation: b.3}
regions:
  g: {size: 1GiB, tensors: {t.$(n): {each: {n: rank}, dtype: f99, shape: [$(n)]}}}
""",
        ["3:HP024", "3:HP013", "4:HP024", "4:HP101", "8:HP024", "8:HP202", "8:HP101", "11:HP024", "11:HP104"],
    ),
    "a file that cannot be read": (
        """hipplan: 1
include: missing.yaml
allocations:
  a: {device: left, size: $(there)}
  b: {device: left, size: 0}
reservations:
  r: {mappings: [{allocation: there}]}
contents:
  there: {value: 0}
  b: {file: 3}
""",
        ["2:HP025", "5:HP105", "10:HP103"],
    ),
    "contents beside a broken object": (
        """hipplan: 1
buffers:
  good: {kind: pinned, size: 4}
  wrong: {kind: pined, size: 4}
regions:
  read: {size: 1MiB, access: {gpu.0: r}}
  typo: {size: 1MiB, access: {gpu.o: rw}}
contents:
  wrong: {value: 0}
  nowhere: {value: 0}
  read: {value: 0}
  typo: {value: 0}
  good: {value: 300}
""",
        ["4:HP104", "7:HP201", "10:HP213", "11:HP213", "13:HP105"],
    ),
    "a noun that is no mapping": (
        """hipplan: 1
devices: 2
allocations:
  a: {device: left, size: 0}
  b: {device: left, size: 1MiB}
buffers: [x]
contents:
  x: {value: 0}
  b: {value: true, dtype: f64}
""",
        ["2:HP103", "4:HP105", "6:HP103"],
    ),
    "a tensor that does not fit, and its contents": (
        """hipplan: 1
devices: {gpu: {count: 2}}
regions:
  parts:
    devices: [gpu.*]
    size: 8MiB
    tensors: {a: {dtype: u8, shape: [6291456], device: gpu.0}}
  huge: {device: gpu.1, size: 900GiB}
contents:
  parts.a: {value: 0}
""",
        ["7:HP212", "8:HP301"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_all_errors_are_reported_and_nothing_else(text: str, expected: list[str], hipplan: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    done = hipplan("validate", "plan.yaml", "--machine", "sim-2", "--format", "json", cwd=tmp_path)
    (file,) = json.loads(done.stdout)["files"]
    results = [
        f"{diagnostic['span']['line']}:{diagnostic['code']}"
        for diagnostic in file["diagnostics"]
        if diagnostic["severity"] == "error"
    ]

    assert list(dict.fromkeys(results)) == expected
    assert done.returncode == (3 if all("HP3" in item or "HP212" in item for item in expected) else 2)
    assert "Traceback" not in done.stderr


def test_a_profile_that_is_not_there_hides_no_mistake_of_the_plan(hipplan: Run, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("hipplan: 1\nallocations: {a: {size: 0}}\n")
    done = hipplan("validate", "plan.yaml", "--machine", "nowhere", cwd=tmp_path)

    assert done.returncode == 2
    assert "HP105" in done.stderr
    assert "HP110" in done.stderr
