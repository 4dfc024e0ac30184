"""What hipplan itself measures in a repetition."""

from __future__ import annotations

from tests.experiment.conftest import Write, experiment, lines


def test_objects_to_copy_are_named(write: Write) -> None:
    plan = "hipplan: 1\nregions: {a1: {size: 2MiB}, a2: {size: 2MiB}, b: {size: 2MiB}, c: {size: 2MiB}}\n"
    assert experiment("run", path := write("repeat: 1\nmeasure: [copy]\nobjects: ['a?', b]\n", plan=plan)) == 0
    assert {name for name in lines(path)[0]["metrics"] if name.startswith("copy")} == {
        f"copy {source} > {to}" for source in ("a1", "a2", "b") for to in ("a1", "a2", "b") if source != to
    }

    path = write("repeat: 1\nmeasure: [copy]\nobjects: [d]\n", plan=plan)
    path.with_name("e.results.jsonl").unlink()
    assert experiment("run", path) == 4
    assert lines(path)[0]["error"]["summary"] == "no object 'd' can be copied"


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
