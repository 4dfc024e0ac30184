"""What hipplan itself measures in a repetition."""

from __future__ import annotations

from tests.experiment.conftest import Write, experiment, lines


def test_a_repetition_measures_the_plans_memory_and_ordinary_buffers(write: Write) -> None:
    plan = """hipplan: 1
vars: {size: 1MiB}
regions: {a: {size: $(size)}, b: {size: $(size)}}
buffers: {m: {kind: managed, size: 64KiB}}
"""
    path = write("vary: {size: [2MiB]}\nrepeat: 1\nmeasure: [copy, prefetch, map, first_touch, latency]\n", plan=plan)

    assert experiment("run", path) == 0
    (line,) = lines(path)
    metrics, units = line["metrics"], line["units"]
    for key in ("copy a > b", "latency b > a", "prefetch m > host", "map", "unmap", "first_touch m by gpu.0"):
        assert metrics[key] > 0 and metrics[f"plain {key}"] > 0
    assert units["copy a > b"] == units["plain copy a > b"] == "GB/s" and units["map"] == "us"
    assert line["plan"]["verified"] and line["provenance"]["runtime"]["kind"] == "simulator"
    assert line["times"].keys() == {"start", "apply", "work"}
    assert sum(line["times"].values()) < line["seconds"]
