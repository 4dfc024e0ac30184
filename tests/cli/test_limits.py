"""Documents that ask for more than there is: one error says what asked for how many, before anything is made.

What a child process takes is measured as resident memory and CPU seconds. Those depend on what else runs: processors
share cores and caches, and a busy machine takes twice as many. So they are divided by what a fixed piece of work takes,
and a run that takes too many is repeated: the quickest counts.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import NamedTuple

import pytest

from tests.cli.conftest import Run
from tests.conftest import WHOLE
from tests.started import Ended, Started

Hold = Callable[[str, tuple[float, float], list[list[str]]], list[tuple[int, str]]]

SMALL = (2.0, 300)
"""CPU seconds of an idle machine and MiB that a document of 64 KiB may take, and one of 10 MB."""
LARGE = (10.0, 1000)
FLOOD = (8.0, 900)
"""What must be clearly below that, for each mistake adds to it."""
PART = 1 if WHOLE else 4
PARTLY = (2.5, 350)
"""Of a document of 10 MB that is cut to a quarter or less."""

EXPRESSION = "$(" + "1 + " * 500 + "index)"
TEXT = "x" * 3900
ADVICE = ", ".join(["{advise: read_mostly}"] * 1000)

PAST: dict[str, str] = {
    "chunks": "regions: {r: {chunk: 4KiB, size: 64GiB}}",
    "chunks that a device holds": "regions: {r: {chunk: 4KiB, size: 256MiB}}",
    "repetitions": "allocations: {a: {each: 60000, size: 1}}",
    "rights": "devices: {gpu: {count: 1000}}\nallocations: {a: {count: 9000, size: 1}}\n"
    "reservations: {r: {access: {gpu.*: rw}, mappings: [{allocation: a.*}]}}",
    "chunks of petabytes": "regions: {r: {chunk: 4KiB, size: 15PiB}}",
    "peers": "devices: {gpu: {count: 4095}}\npeers: all",
    "more peers": "devices: {gpu: {count: 250000}}\npeers: all",
    "texts": f'allocations: {{a: {{each: 250000, size: 1MiB, bind: "{TEXT}$(index)", shareable: posix_fd}}}}',
    "expressions": f'allocations: {{a: {{each: 250000, size: "{EXPRESSION}"}}}}',
    "advice": f"buffers: {{b: {{kind: managed, size: 1GiB, count: 250000, advice: [{ADVICE}]}}}}",
    "advice on few": f"buffers: {{b: {{kind: managed, size: 1GiB, count: 1000, advice: [{ADVICE}]}}}}",
    "patterns": f"devices: {{gpu: {{count: 1000}}}}\nregions: {{r: {{size: 1GiB, devices: [{'gpu.*, ' * 2000}]}}}}",
    "products": "allocations: {a: {each: {x: 100000, y: 100000, z: 100000}, size: 1}}",
    "domains": "allocations: {a: {each: {" + ", ".join(f"n{i}: 1000000" for i in range(2000)) + "}, size: 1}}",
    "counts of devices": "devices:\n" + "".join(f"  g{i}: {{count: 100000}}\n" for i in range(2000)),
    "counts": "buffers: {b: {kind: device, size: 1, count: 99999999999999999999999999999}}",
    "copies of chunks": "devices: {gpu: {count: 2}}\nregions: {g: {devices: [gpu.*], spread: interleave, chunk: 2MiB, "
    "size: 16GiB}}\nbuffers: {b: {count: 200, kind: device, size: 16GiB}}\n"
    "contents: {b.$(each): {each: 200, copy_of: g}}",
    "tensors of many devices": "devices: {gpu: {count: 1000}}\nregions: {r: {each: 90, devices: [gpu.*], tensors: "
    '{t: {each: 150, dtype: u8, shape: [1], device: "gpu.$(index)"}}}}',
    "rights to tensors": "devices: {gpu: {count: 1000}}\nregions: {g: {size: 1GiB, access: {gpu.*: rw}, "
    "tensors: {t: {each: 15000, dtype: u8, shape: [1]}}}}",
    "prefetches": "buffers: {b: {each: 50, kind: managed, size: 1MiB, prefetch: [" + "{to: host}, " * 900 + "]}}",
    "errors": "buffers: {b: {each: 15000, kind: managed, size: 1, advice: [" + "1, " * 44 + "]}}",
    "mappings by alias": "allocations: {a: {size: 2MiB}}\nreservations:\n  r: {mappings: &a ["
    + "{allocation: a}, " * 1000
    + "]}\n"
    + "".join(f"  r{i}: {{mappings: *a}}\n" for i in range(40)),
    "aliases": "k0: &k0 x\n" + "".join(f"k{i}: &k{i} [{f'*k{i - 1}, ' * 10}]\n" for i in range(1, 9)),
}


SANITIZED = 4 if "HIPPLAN_SANITIZER" in os.environ else 1
"""A sanitizer's allocator keeps what was freed, and its checks take time."""


RUNS = 4
"""How often a run is measured at most."""
IDLE_S = 0.037
"""What slowdown() takes on the idle machine on which the limits above were set."""


def slowdown() -> float:
    """How many times as long as there a fixed piece of work takes now; at least 1."""
    begin_s = process_time()
    assert sum(len(f"name.{number}") for number in range(300_000)) == 3_188_890
    return max(1.0, (process_time() - begin_s) / IDLE_S)


def measured(started: Started, *arguments: object, cwd: Path) -> tuple[str, Ended]:
    """What one run says, and what it would take on an idle machine."""
    before = slowdown()
    with (cwd / "said").open("w+") as answer, Path(os.devnull).open() as nothing:
        streams = (nothing.fileno(), answer.fileno(), answer.fileno())
        ended = started.run_on([*map(str, arguments)], streams, dict(os.environ), cwd)
        answer.seek(0)
        return answer.read(), ended._replace(seconds=ended.seconds / max(before, slowdown()))


@pytest.fixture
def hold(started: Started, tmp_path: Path) -> Hold:
    """hold(text, most, verbs): what each verb says of a plan, within these seconds and MiB, and its exit code."""
    return lambda text, most, verbs: _hold(started, tmp_path, text, most, verbs)


def _hold(
    started: Started, folder: Path, text: str, most: tuple[float, float], verbs: list[list[str]]
) -> list[tuple[int, str]]:
    (folder / "plan.yaml").write_text(f"hipplan: 1\n{text}\n")
    out = []
    for verb, *more in verbs:
        for _ in range(RUNS):
            answer, ended = measured(started, verb, "plan.yaml", *more, cwd=folder)
            within = ended.seconds < most[0] * SANITIZED, ended.mib < most[1] * SANITIZED
            if within == (True, True):
                break
        assert within == (True, True), (verb, more, ended)
        assert "Traceback" not in answer, answer[-3000:]
        out.append((ended.code, answer))
    return out


@pytest.mark.in_parts
@pytest.mark.parametrize("text", PAST.values(), ids=PAST)
def test_an_expansion_past_the_limit_is_one_error_and_takes_nothing(text: str, hold: Hold) -> None:
    (outputs,) = hold(text, SMALL, [["preview", "--machine", "sim-2"]])
    code, answer = outputs

    assert code == 2, answer[:2000]
    assert len(re.findall(r"error\[HP023\]: .* asks for [\d,]+ ", answer)) == 1, answer[:2000]
    assert "the limit of one document is" in answer
    assert len(answer) < 20_000


NEAR: dict[str, str] = {
    "interleaved": "devices: {gpu: {count: 2}}\nregions:\n  r: {devices: [gpu.*], spread: interleave, chunk: 2MiB, "
    "size: 12GiB, tensors: {t.$(n): {each: {n: 10000}, dtype: f32, shape: [256, 1024]}}}",
    "together": "vars: {" + ", ".join(f"v{i}: 1" for i in range(15)) + "}\n"
    "buffers: {b: {each: 20, kind: managed, size: 1MiB, advice: [" + "{advise: read_mostly}, " * 900 + "]}}\n"
    'allocations: {a: {each: 5000, size: "$(' + "1 + " * 40 + 'index)", shareable: posix_fd}}\n'
    "reservations: {r: {each: 4000, size: 2MiB}}",
    "tensors": "regions: {r: {tensors: {t.$(n): {each: {n: 10000}, dtype: f32, shape: [16, 16]}}}}",
    "patterns": "devices: {gpu: {count: 2}}\nallocations: {a: {size: 1}}\nreservations:\n  r:\n    mappings:\n"
    + "    - {allocation: a, access: {gpu.*: rw}}\n" * 1400,
    "families": "devices: {gpu: {count: 2}}\nallocations: {a: {count: 4096, size: 1KiB}}\n"
    "reservations: {r: {access: {gpu.*: rw}, mappings: [{allocation: a.*}]}}",
}


@pytest.mark.in_parts
@pytest.mark.parametrize("text", NEAR.values(), ids=NEAR)
def test_large_plans_are_quick(text: str, hold: Hold) -> None:
    verbs = [["validate"], ["preview", "--machine", "sim-2"], ["preview", "--machine", "sim-2", "--format", "json"]]
    assert [code for code, _ in hold(text, SMALL, verbs)] == [0, 0, 0]


LETTERS = random.Random(16)
ALIKE = ["x" + "".join(LETTERS.choices("ab", k=78)) for _ in range(325)]

SLOW: dict[str, tuple[str, str]] = {
    "names alike": ("sim-2", "allocations:\n" + "".join(f"  {name}: {{size: 1}}\n" for name in ALIKE[:300])
    + "reservations: {r: {mappings: [" + ", ".join(f"{{allocation: {name}}}" for name in ALIKE[300:]) + "]}}"),
    "numbers of devices": ("sim-2", "devices: {gpu: {count: 24000}}\n"
    "streams: {a: {each: 14000, device: 'cuda:9$(index % 1000)'}}"),
    "errors": ("sim-2", "buffers: {b: {each: 200, kind: managed, size: 1, advice: [" + "1, " * 480 + "]}}"),
    "chunks of many devices": ("thousand", "devices: {gpu: {count: 1000}}\nregions: {r: {each: 90, access: {}, "
    "devices: [gpu.*], tensors: {t: {dtype: u8, shape: [1], device: gpu.0}}}}"),
    "ranges that share memory": ("hip-7.2", "allocations: {a: {size: 2MiB}, b: {size: 4MiB}}\nreservations: "
    "{r: {each: 5000, access: {gpu.0: rw}, mappings: [{allocation: a}, {allocation: b, at: 16MiB}]}}"),
    "a range in many pieces": ("hip-7.2", "allocations: {a: {size: 2MiB}, b: {size: 2TiB}}\nreservations: "
    "{r: {access: {gpu.0: rw}, mappings: [{allocation: a}, {allocation: b, at: 16MiB}]}}"),
    "ranges in many pieces": ("hip-7.2", "allocations: {a: {count: 4000, size: 2MiB}, b: {count: 4000, size: 1GiB}}\n"
    "reservations: {r: {each: 4000, access: {gpu.0: rw}, mappings: "
    "[{allocation: a.$(index)}, {allocation: b.$(index), at: 16MiB}]}}"),
}  # fmt: skip


@pytest.mark.in_parts
@pytest.mark.parametrize(("machine", "text"), SLOW.values(), ids=SLOW)
def test_a_plan_with_mistakes_is_refused_quickly(machine: str, text: str, tmp_path: Path, hold: Hold) -> None:
    if machine != "sim-2":
        count = {"hip-7.2": 1, "thousand": 1000}[machine]
        profile = {"name": "m", "hip_version": "7.2.0", "devices": [{"name": "g", "memory": 2**53}] * count}
        machine = str(tmp_path / "m.yaml")
        Path(machine).write_text(json.dumps(profile))
    ((code, outputs),) = hold(text, SMALL, [["preview", "--machine", machine]])

    assert code in (2, 3)
    assert outputs.count("error[") <= 1001


def test_a_long_list_of_devices_makes_its_own_line_long_and_no_other(tmp_path: Path, hold: Hold) -> None:
    profile = {"name": "m", "runtime": "sim", "devices": [{"name": "g", "memory": 2**40}] * 250}
    profile["meshes"] = [{"devices": list(range(250))}]
    (tmp_path / "m.yaml").write_text(json.dumps(profile))
    text = f"devices: {{{'n' * 240}: {{count: 250}}}}\nregions: {{g: {{devices: [{'n' * 240}.*], spread: interleave, "
    text += "chunk: 2MiB, size: 780MiB, access: {}}}"
    ((code, outputs),) = hold(text, SMALL, [["preview", "--machine", "m.yaml"]])

    assert code == 0
    assert len(outputs) < 3_000_000


def test_a_plan_for_a_thousand_devices_is_quick(tmp_path: Path, hold: Hold) -> None:
    devices = [{"name": f"device {number}", "memory": 2**36} for number in range(1000)]
    profile = {"name": "large", "runtime": "sim", "devices": devices}
    (tmp_path / "large.yaml").write_text(json.dumps(profile))
    text = "devices: {gpu: {count: 1000}}\nbuffers: {b: {kind: device, size: 4KiB, count: 20000}}"

    assert [code for code, _ in hold(text, SMALL, [["preview", "--machine", "large.yaml"]])] == [0]


@pytest.mark.in_turns
def test_a_document_of_ten_megabytes_is_quick(hold: Hold) -> None:
    one = "  an_allocation_{}: {{size: 1MiB, shareable: posix_fd}}\n  # " + "x" * 900
    several = "\n".join(map(one.format, range(10_000)))
    verbs = [["preview", "--machine", "sim-2"], ["fmt"]]

    assert [code for code, _ in hold(f"allocations:\n{several}", LARGE, verbs)] == [0, 0]


@pytest.mark.in_turns
def test_a_large_document_past_the_limits_is_refused_quickly(hold: Hold) -> None:
    twice = "allocations: {" + "a: {size: 1}, " * (200_000 // PART) + "}"

    assert [code for code, _ in hold(twice, LARGE, [["validate"], ["fmt"]])] == [2, 2]


def test_a_profile_of_many_groups_of_devices_takes_nothing(tmp_path: Path, hold: Hold) -> None:
    """Each of 60 groups has 65,280 pairs."""
    devices = ", ".join("{name: g, memory: 1GiB}" for _ in range(256))
    group = "{devices: [" + ", ".join(map(str, range(256))) + "]}"
    text = f"name: m\nhip_version: 7.15.0\ndevices: [{devices}]\nmeshes: [{', '.join([group] * 60)}]\n"
    (tmp_path / "m.yaml").write_text(text)
    plan = "devices: {gpu: {count: 4}}\npeers: all\nbuffers: {b: {kind: device, device: gpu.0, size: 1MiB}}"

    assert [code for code, _ in hold(plan, SMALL, [["preview", "--machine", "m.yaml"]])] == [0]


WRONG: dict[str, tuple[str, int]] = {
    "repeated": ('buffers: {b: {each: 12000, kind: device, size: "$(0 - index - 1)"}}', 1),
    "written": ("buffers:\n" + "".join(f"  b{i}: {{kind: x}}\n" for i in range(4000)), 1000),
    "places": (
        "devices: {gpu: {count: 1000}}\nallocations: {a: {size: 1MiB}}\nreservations:\n  r:\n    mappings:\n"
        + "    - {allocation: b, access: {cpu.*: rw}}\n" * 1400,
        1000,
    ),
}


@pytest.mark.in_parts
@pytest.mark.parametrize(("text", "most"), WRONG.values(), ids=WRONG)
def test_no_run_shows_more_than_a_thousand_diagnostics(text: str, most: int, hold: Hold) -> None:
    verbs = [["validate", "--format", form] for form in ("text", "json", "github", "sarif")]
    outputs = hold(text, SMALL, verbs)

    assert {code for code, _ in outputs} == {2}
    told_as_text, as_json, github, sarif = (answer for _, answer in outputs)
    report = json.loads(as_json)["files"][0]["diagnostics"]
    results = json.loads(sarif)["runs"][0]["results"]
    assert told_as_text.count("error[") == github.count("::error ") == len(results) == len(report)
    if most > 1:
        left_out = report[-1]["left_out"]
        assert (len(report), report[-1]["code"], left_out > 0) == (1001, "HP027", True)
        for answer in (told_as_text, github, results[-1]["message"]["text"]):
            assert f"and {left_out:,} more" in answer
    else:
        assert report[0]["notes"] == ["and: 11999 more of this each"]


def test_the_limit_is_of_a_run_not_of_a_file(tmp_path: Path, hipplan: Run) -> None:
    for number in range(3):
        (tmp_path / f"{number}.yaml").write_text("hipplan: 1\nbuffers:\n" + "".join(f"  b{i}: 1\n" for i in range(600)))
    files = json.loads(hipplan("validate", tmp_path, "--format", "json").stdout)["files"]
    text = hipplan("validate", tmp_path).stderr

    assert [len(file["diagnostics"]) for file in files] == [600, 401, 1]
    assert [file["diagnostics"][-1]["left_out"] for file in files] == [0, 200, 600]
    assert text.count("error[HP027]") == 1 and text.endswith("\nerror[HP027]: and 800 more\n")


class Flood(NamedTuple):
    """A document in which nearly every value is a mistake."""

    text: Callable[[int], str]
    """With so many mistakes."""
    many: int
    """So many make it 10 MB."""
    few: int
    """So many are past the limit."""
    told: str
    """What is said of it, where {} is the number."""


def each(count: int) -> str:
    return "[" + "1, " * count + "]"


def keyed(count: int, begin: str = "t") -> str:
    return "{" + "".join(f"{begin}{i}: 1, " for i in range(count)) + "}"


MANAGED = "kind: managed, size: 1"
STEPS, MISTAKES = (700_000, 50_000), (370_000, 105_000)
FLOODS: dict[str, Flood] = {
    "advice": Flood(
        lambda n: f"buffers: {{b: {{{MANAGED}, advice: {each(n)}}}}}", *STEPS, "'advice' asks for {} steps"
    ),
    "prefetch": Flood(
        lambda n: f"buffers: {{b: {{{MANAGED}, prefetch: {each(n)}}}}}", *STEPS, "'prefetch' asks for {} steps"
    ),
    "mappings": Flood(
        lambda n: f"reservations: {{r: {{mappings: {each(n)}}}}}", *STEPS, "'mappings' asks for {} steps"
    ),
    "peers": Flood(lambda n: f"peers: {each(n)}", *STEPS, "'peers' asks for {} steps"),
    "devices": Flood(lambda n: f"regions: {{r: {{devices: {each(n)}}}}}", *STEPS, "'devices' asks for {} steps"),
    "many lists": Flood(
        lambda n: "buffers:\n" + f"  b$: {{{MANAGED}, advice: {each(39_000)}}}\n" * (n // 39_000),
        *(18 * 39_000, 3 * 39_000),
        "this document has {} errors",
    ),
    "tensors": Flood(lambda n: f"regions: {{r: {{tensors: {keyed(n)}}}}}", *MISTAKES, "this document has {} errors"),
    "names and tensors": Flood(
        lambda n: f"regions: {{r: {{tensors: {keyed(n // 2, '-t')}}}}}",
        *(740_000, 105_000 // 2 * 2),
        "this document has {} errors",
    ),
    "rights": Flood(
        lambda n: f"reservations: {{r: {{size: 1, access: {keyed(n)}}}}}", *MISTAKES, "this document has {} errors"
    ),
    "unknown keys": Flood(
        lambda n: f"buffers: {{b: {{{MANAGED}, {keyed(n)[1:]}}}", *MISTAKES, "this document has {} errors"
    ),
    "unknown keys of many": Flood(
        lambda n: "buffers:\n" + f"  b$: {{{MANAGED}, {keyed(17)[1:]}\n" * (n // 17),
        *(18_000 * 17, 6_200 * 17),
        "this document has {} errors",
    ),
}
"""'$' becomes another number in each line. In `make test` one has 10 MB, the others are little past the limit."""


@pytest.mark.in_parts
@pytest.mark.parametrize("what", FLOODS)
def test_a_flood_of_mistakes_is_one_error_and_refused_quickly(what: str, hold: Hold) -> None:
    """Of each mistake pydantic keeps more than a kilobyte."""
    flood = FLOODS[what]
    whole = WHOLE or what == "unknown keys"
    count = flood.many if whole else flood.few
    number = itertools.count()
    text = re.sub(r"\$", lambda _: str(next(number)), flood.text(count))
    ((code, outputs),) = hold(text, FLOOD if whole else PARTLY, [["validate"]])

    assert code == 2
    assert outputs.count("error[") == outputs.count("error[HP023]") == 1, outputs[:2000]
    assert flood.told.format(f"{count:,}") in outputs
    assert "the limit of one document is" in outputs


ONE = {"name": "g", "memory": "1GiB"}

PROFILES: dict[str, tuple[dict[str, object], int]] = {
    "devices": ({"devices": [ONE] * (100_000 // PART)}, 2),
    "links": ({"devices": [ONE] * 2, "links": [{"source": 0, "target": 1}] * 100_000}, 2),
    "keys that a profile has not": ({"devices": [ONE], **{f"k{i}": 1 for i in range(370_000 // PART)}}, 2),
    "facts with unknown names": ({"devices": [ONE], "unknown": [1] * (700_000 // PART)}, 2),
    "a long name": ({"devices": [{"name": "g" * (5_000_000 // PART)}]}, 2),
    "a line break where the simulator reads lines": ({"devices": [{**ONE, "arch": "x\ndevice.0.vmm=0"}]}, 2),
    "more in use than there is": ({"devices": [{**ONE, "in_use": "1TiB"}]}, 0),
}
"""Those of 10 MB, all but the links, have a quarter of it in `make test`."""


@pytest.mark.in_parts
@pytest.mark.parametrize("what", PROFILES)
def test_a_hostile_profile_takes_nothing(what: str, tmp_path: Path, hold: Hold) -> None:
    profile, code = PROFILES[what]
    (tmp_path / "m.yaml").write_text(json.dumps({"name": "m", **profile}))
    most = LARGE if WHOLE or what == "links" else PARTLY
    ((ended, outputs),) = hold("streams: {s: {}}", most, [["validate", "--machine", "m.yaml"]])

    assert ended == code, outputs[:2000]
    assert len(outputs) < 1_000_000


@pytest.mark.in_turns
def test_more_tensors_than_a_plan_can_name_are_the_mistake_that_is_reported(tmp_path: Path, hipplan: Run) -> None:
    """Of one byte: no plan may have so many values."""
    count = 128_000
    header = json.dumps({f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(count)})
    file = tmp_path / "a.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(count))
    done = hipplan("import", "safetensors", file)

    assert done.returncode == 2
    assert "error[HP023]" in done.stderr


def test_links_that_go_round_in_circles_are_files_that_cannot_be_read(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "plan.yaml").write_text("hipplan: 1\ninclude: loop\n")
    for arguments in (["validate", "plan.yaml"], ["validate", "loop"], ["validate", "."], ["fmt", "--check", "."]):
        done = hipplan(*arguments, cwd=tmp_path)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
    assert "HP025" in hipplan("validate", "plan.yaml", cwd=tmp_path).stderr


def test_what_a_file_names_one_by_one_is_reported_as_a_whole(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "plan.yaml").write_text("hipplan: 1\nstreams:\n" + "".join(f"  s{i}: {{}}\n" for i in range(50_000)))

    assert "streams asks for 50,000 steps" in hipplan("validate", tmp_path / "plan.yaml").stderr
