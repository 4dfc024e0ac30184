"""Regions in which each device writes its own part and reads the others: `access: {owner: rw, others: r}`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, MachineError, PlanError
from hipplan.layout.layout import Layout
from hipplan.lowering.compiler import compile_change
from hipplan.machines.profiles import load_machine
from hipplan.program import listing, written
from hipplan.program.program import Program
from tests.conftest import Simulator
from tests.faults.harness import as_release

MIB = 2**20
RIGHTS = {0: "none", 1: "r", 3: "rw"}
OWNERS = {"owner": "rw", "others": "r"}
TENSORS = {
    "first": {"dtype": "u8", "shape": [100], "device": "gpu.0"},
    "second": {"dtype": "u8", "shape": [100], "device": "gpu.1"},
}


def plan(access: dict[str, str], gpus: int = 2, contents: Any = None, **keys: Any) -> dict[str, Any]:
    """A region over the first two of some devices."""
    region = {"devices": ["gpu.0", "gpu.1"], "access": access, "size": "8MiB", "chunk": "2MiB", **keys}
    made: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": gpus}}, "regions": {"r": region}}
    return made | ({"contents": contents} if contents else {})


def growing(access: dict[str, str], **keys: Any) -> dict[str, Any]:
    tensors = {"pages": {"dtype": "u8", "shape": [-1]}}
    return plan(access, spread="interleave", reserve="64MiB", tensors=tensors, **keys)


def compiled(data: dict[str, Any], machine: str = "sim-2") -> Program:
    return hipplan.compile(hipplan.load(data), machine=load_machine(machine))


def access(program: Program, name: str) -> dict[str, str]:
    return dict(next(resource for resource in program.resources if resource.name == name).access)


def of_driver(layout: Layout, name: str) -> list[str]:
    """What each device of the simulator may do there."""
    return [RIGHTS[layout.runtime.access(device, layout[name].address)] for device in (0, 1)]


@pytest.mark.parametrize(
    ("written_as", "first", "second"),
    [
        (OWNERS, {"gpu.0": "rw", "gpu.1": "r"}, {"gpu.0": "r", "gpu.1": "rw"}),
        ({"owner": "rw"}, {"gpu.0": "rw"}, {"gpu.1": "rw"}),
        ({"owner": "none", "others": "r"}, {"gpu.1": "r"}, {"gpu.0": "r"}),
        ({"owner": "rw", "gpu.2": "r"}, {"gpu.0": "rw", "gpu.2": "r"}, {"gpu.1": "rw", "gpu.2": "r"}),
        (
            {"gpu.*": "r", "owner": "rw"},
            {"gpu.0": "rw", "gpu.1": "r", "gpu.2": "r"},
            {"gpu.0": "r", "gpu.1": "rw", "gpu.2": "r"},
        ),
        ({"others": "none", "owner": "rw", "gpu.*": "r"}, {"gpu.0": "rw", "gpu.2": "r"}, {"gpu.1": "rw", "gpu.2": "r"}),
        ({**OWNERS, "gpu.0": "r"}, {"gpu.0": "r", "gpu.1": "r"}, {"gpu.0": "r", "gpu.1": "rw"}),
        ({**OWNERS, "gpu.1": "none"}, {"gpu.0": "rw"}, {"gpu.0": "r"}),
        ({"owner": "rw", "host": "r"}, {"gpu.0": "rw", "host": "r"}, {"gpu.1": "rw", "host": "r"}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_more_exact_wins(written_as: dict[str, str], first: dict[str, str], second: dict[str, str]) -> None:
    """A pattern, then owner and others, then a name; a device outside of the region is none of the others."""
    program = compiled(plan(written_as, gpus=3, tensors=TENSORS), "mi300x-8")
    assert [access(program, name) for name in ("r[0]", "r[1]")] == [first, first]
    assert [access(program, name) for name in ("r[2]", "r[3]")] == [second, second]
    assert (access(program, "r.first"), access(program, "r.second")) == (first, second)
    both = first.keys() & second.keys()
    assert access(program, "r") == {who: min(first[who], second[who]) for who in both}


def test_the_order_in_which_it_is_written_does_not_matter() -> None:
    one, other = ({"owner": "rw", "gpu.*": "none", "gpu.1": "r"}, {"gpu.1": "r", "gpu.*": "none", "owner": "rw"})
    for name in ("r[0]", "r[3]"):
        assert access(compiled(plan(one)), name) == access(compiled(plan(other)), name)


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        ({"access": {"others": "r"}}, "HP107", "add owner: rw"),
        ({"access": {"owner": "w"}}, "HP104", "write r or rw"),
        ({"access": {"ownr": "rw"}}, "HP201", "did you mean 'owner'"),
        ({"devices": None, "access": {"owner": "rw", "others": "r"}}, "HP107", "name the devices"),
        ({"devices": None, "device": "gpu.1", "access": OWNERS}, "HP107", "access: {owner: rw, gpu.1: r}"),
    ],
)
def test_what_means_nothing_is_refused(change: dict[str, Any], code: str, expected: str) -> None:
    data = plan(OWNERS)
    data["regions"]["r"] = {key: item for key, item in (data["regions"]["r"] | change).items() if item is not None}
    with pytest.raises(PlanError, match=expected) as caught:
        hipplan.load(data)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]
    assert caught.value.diagnostics[0].span is not None


@pytest.mark.parametrize("word", ["owner", "others"])
def test_the_words_are_no_devices(word: str) -> None:
    with pytest.raises(PlanError, match=rf"HP106.*{word} cannot be the name of a device"):
        hipplan.load({"hipplan": 1, "devices": {word: {}, "gpu": {}}})
    mapping = {"allocation": "a", "access": {word: "rw"}}
    ranges = {"allocations": {"a": {"size": "2MiB"}}, "reservations": {"x": {"mappings": [mapping]}}}
    with pytest.raises(PlanError, match=rf"HP201(?s:.*){word} is only for the access of regions"):
        hipplan.load({"hipplan": 1, **ranges})


def test_in_a_region_with_another_mistake_they_are_no_mistakes() -> None:
    with pytest.raises(PlanError) as caught:
        hipplan.load(plan(OWNERS, sise="8MiB"))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP101"]


def test_a_pattern_may_mean_one_device() -> None:
    """A plan whose count is a variable."""
    data = plan(OWNERS, gpus=1, devices=["gpu.*"])
    assert access(compiled(data), "r") == {"gpu.0": "rw"}


def test_no_access_for_two_before_hip_6_3_but_owners_alone_have_it() -> None:
    before = load_machine("sim-2").model_copy(update={"hip_version": "6.2.41134"})
    with pytest.raises(MachineError, match=r"gpu.0 and gpu.1 cannot both have access to 'r' on gpu.1") as caught:
        hipplan.compile(hipplan.load(plan(OWNERS)), machine=before)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [
        "HP309"
    ] * 2  # one a device, not one a chunk
    assert hipplan.compile(hipplan.load(plan({"owner": "rw"})), machine=before).steps


def test_no_access_without_a_link() -> None:
    apart = load_machine("sim-2").model_copy(update={"links": [], "meshes": []})
    with pytest.raises(MachineError, match=r"HP307.*gpu.1 cannot be given access to 'r' on gpu.0"):
        hipplan.compile(hipplan.load(plan(OWNERS)), machine=apart)
    assert hipplan.compile(hipplan.load(plan({"owner": "rw"})), machine=apart).steps


def test_each_writes_its_own_part_and_reads_the_others(sim: Simulator) -> None:
    with hipplan.apply(plan(OWNERS, tensors=TENSORS), runtime="sim") as layout:
        assert of_driver(layout, "r[0]") == of_driver(layout, "r[1]") == ["rw", "r"]
        assert of_driver(layout, "r[2]") == of_driver(layout, "r[3]") == ["r", "rw"]
        assert layout.drift() == []
    assert sim.alive() == set()


def test_a_view_may_write_what_its_device_may_write_all_of(sim: Simulator) -> None:
    whole = {"dtype": "u8", "shape": [-1]}
    with (
        hipplan.apply(plan(OWNERS, tensors=TENSORS), runtime="sim") as layout,
        hipplan.apply(plan(OWNERS, tensors={"whole": whole}), runtime="sim") as spread,
        hipplan.apply(plan({"owner": "rw"}, tensors=TENSORS), runtime="sim") as alone,
    ):
        writable = {
            (name, who): not layout[name].on(who).read_only
            for name in ("r.first", "r.second")
            for who in ("gpu.0", "gpu.1")
        }
        assert writable == {
            ("r.first", "gpu.0"): True, ("r.first", "gpu.1"): False,
            ("r.second", "gpu.0"): False, ("r.second", "gpu.1"): True,
        }  # fmt: skip
        assert layout["r.second"].device == "gpu.1"
        assert [spread["r.whole"].on(who).read_only for who in ("gpu.0", "gpu.1")] == [True, True]
        assert [spread["r[3]"].on(who).read_only for who in ("gpu.0", "gpu.1")] == [True, False]
        with pytest.raises(BufferError, match="one device's part"):
            alone["r"].__dlpack__(max_version=(1, 0))
        with pytest.raises(BufferError, match=r"only from gpu.1"):
            alone["r.second"].on("gpu.0")


def test_contents_are_written_by_the_owners(sim: Simulator) -> None:
    tensors = {"whole": {"dtype": "i32", "shape": [-1]}}
    with hipplan.apply(plan(OWNERS, tensors=tensors, contents={"r.whole": {"value": 7}}), runtime="sim") as layout:
        assert sim.read(layout["r"].address, 8 * MIB) == (7).to_bytes(4, "little") * (2 * MIB)
        layout.fill("r.whole", -1)
        assert sim.read(layout["r"].address, 8 * MIB) == b"\xff" * (8 * MIB)
    with pytest.raises(MachineError, match=r"HP213.*gpu.0 may not write 'r'"):
        compiled(plan({"owner": "r", "others": "rw"}, contents={"r": {"value": 1}}))
    with pytest.raises(PlanError, match=r"HP213.*no device may write 'r.first'"):
        hipplan.load(plan({"owner": "r", "others": "r"}, tensors=TENSORS, contents={"r.first": {"value": 1}}))


def test_what_grows_has_the_rights_of_its_own_owner(sim: Simulator) -> None:
    with hipplan.apply(growing(OWNERS, size="2MiB"), runtime="sim") as layout:
        assert layout["r.pages"].on("gpu.0").read_only is False  # all of it is gpu.0's
        layout.grow("r", to="8MiB")
        rights = [of_driver(layout, f"r[{number}]") for number in range(4)]
        assert rights == [["rw", "r"], ["r", "rw"], ["rw", "r"], ["r", "rw"]]
        assert layout["r.pages"].on("gpu.0").read_only is True
        assert layout.drift() == []
        layout.shrink("r", to="2MiB")
        assert access(layout.program, "r") == {"gpu.0": "rw", "gpu.1": "r"}
    assert sim.alive() == set()


@pytest.mark.parametrize("target", ["gpu.0", "gpu.1"])
def test_moved_to_another_device_it_has_one_owner(target: str, sim: Simulator) -> None:
    with hipplan.apply(growing(OWNERS, size="8MiB"), runtime="sim") as layout:
        layout.fill("r", 5)
        layout.remap("r", device=target)
        expected = ["rw", "r"] if target == "gpu.0" else ["r", "rw"]
        assert [of_driver(layout, f"r[{number}]") for number in range(4)] == [expected] * 4
        assert layout["r.pages"].on(target).read_only is False
        layout.grow("r", by="2MiB")
        assert of_driver(layout, "r[4]") == expected
        assert sim.read(layout["r"].address, 8 * MIB) == b"\5" * (8 * MIB)
        assert layout.drift() == []


@pytest.mark.parametrize("access", ["", ", access: {owner: rw}", ", access: {gpu.0: rw, gpu.1: rw}"])
def test_a_region_of_one_device_is_read_and_written_where_it_moved_to(access: str, sim: Simulator) -> None:
    region = f"device: gpu.0, size: 2MiB, reserve: 8MiB, chunk: 2MiB{access}"
    text = f"hipplan: 1\ndevices: {{gpu: {{count: 2}}}}\nregions: {{w: {{{region}}}}}"
    with hipplan.apply(text, runtime="sim") as layout:
        layout.fill("w", 5)
        layout.remap("w", device="gpu.1")
        assert layout.read("w").tobytes() == b"\5" * (2 * MIB)
        expected = ["rw" if "gpu.1" in access else "none", "rw"]
        layout.grow("w", by="2MiB")
        assert [of_driver(layout, f"w[{number}]") for number in range(2)] == [expected] * 2
        layout.fill("w", 6)
        assert layout.drift() == []
        layout.remap("w", device="gpu.0")
        assert layout.read("w").tobytes() == b"\6" * (4 * MIB)
    assert sim.alive() == set()


def test_a_remap_to_a_device_that_the_plan_gives_no_access_is_refused(sim: Simulator) -> None:
    text = "hipplan: 1\ndevices: {gpu: {count: 2}}\nregions: {w: {device: gpu.0, size: 2MiB, access: {gpu.0: rw}}}"
    with hipplan.apply(text, runtime="sim") as layout:
        with pytest.raises(ApplyError, match=r"no access to 'w' for gpu\.1[^!]*access: {owner: rw}"):
            layout.remap("w", device="gpu.1")
        assert layout["w"].resource.device == "gpu.0"


def test_sealed_and_moved_and_unsealed(sim: Simulator) -> None:
    with hipplan.apply(plan(OWNERS), runtime="sim") as layout:
        layout.seal("r")
        assert {tuple(of_driver(layout, f"r[{number}]")) for number in range(4)} == {("r", "r")}
        with pytest.raises(ApplyError, match="sealed"):
            layout.fill("r", 1)
        layout.remap("r", device="gpu.1")
        assert {tuple(of_driver(layout, f"r[{number}]")) for number in range(4)} == {("r", "r")}
        layout.unseal("r")
        assert {tuple(of_driver(layout, f"r[{number}]")) for number in range(4)} == {("r", "rw")}
        assert layout.drift() == []
        layout.update(plan(OWNERS), lose="*")
        assert [of_driver(layout, f"r[{number}]") for number in (0, 3)] == [["rw", "r"], ["r", "rw"]]


def test_an_update_changes_rights_part_by_part_and_reports_it(sim: Simulator) -> None:
    alike = plan({"gpu.*": "r"})
    with hipplan.apply(alike, runtime="sim") as layout:
        text = str(layout.update(plan(OWNERS)))
        assert text == "~ region r: access (gpu.0: r, gpu.1: r) -> (owner: rw, others: r)"
        assert [of_driver(layout, f"r[{number}]") for number in (0, 3)] == [["rw", "r"], ["r", "rw"]]
        assert str(layout.update(plan(OWNERS))) == "no changes"
        text = str(layout.update(plan({**OWNERS, "gpu.1": "rw"})))
        assert "gpu.0 in its part: rw, gpu.1 in its part: rw, gpu.1 elsewhere: rw, gpu.0 elsewhere: r" in text
        layout.update(alike, lose="*")
        assert {tuple(of_driver(layout, f"r[{number}]")) for number in range(4)} == {("r", "r")}


def test_a_preview_of_other_rights_is_not_empty() -> None:
    old, machine = compiled(plan({"owner": "none", "others": "rw"})), load_machine("sim-2")
    (line,) = listing.lines(compile_change(old, hipplan.load(plan({"owner": "none", "others": "r"})), machine))
    text = "~ region r: access (owner: none, others: rw) -> (owner: none, others: r)"
    assert str(line) == f"{text}; gpu.1 loses write access, gpu.0 loses write access"


@pytest.mark.parametrize(
    "act", [lambda layout: None, lambda layout: layout.grow("r", by="4MiB")], ids=["made", "grown"]
)
def test_a_program_with_owners_can_be_written_and_read(act: Callable[[Layout], Any], sim: Simulator) -> None:
    with hipplan.apply(growing(OWNERS), runtime="sim") as layout:
        act(layout)
        again = written.read(written.write(layout.program))
        assert again == layout.program
        assert again.resources == layout.program.resources


UNEVEN = {
    "small": {"dtype": "u8", "shape": [2 * MIB], "device": "gpu.0"},
    "large": {"dtype": "u8", "shape": [6 * MIB], "device": "gpu.1"},
}


@pytest.mark.parametrize("version", ["7.0.51831", "7.2.53211", "7.3.0"])
def test_parts_of_unequal_sizes_on_each_release(version: str, sim: Simulator) -> None:
    """HIP 7.0 to 7.2 cannot give rights to pieces of unequal sizes in one range: the memory is cut."""
    data = plan(OWNERS, tensors=UNEVEN)
    data["regions"]["r"] = {key: item for key, item in data["regions"]["r"].items() if key not in ("size", "chunk")}
    defects = ["set_access_sums_in_heap_order"] if version < "7.3" else []
    with as_release(sim, version, *defects), hipplan.apply(data, runtime="sim") as layout:
        assert (of_driver(layout, "r.small"), of_driver(layout, "r.large")) == (["rw", "r"], ["r", "rw"])
        assert dict(layout["r.large"].resource.access) == {"gpu.0": "r", "gpu.1": "rw"}
        layout.fill("r", 3)
        layout.seal("r")
        layout.unseal("r")
        assert (of_driver(layout, "r.small"), of_driver(layout, "r.large")) == (["rw", "r"], ["r", "rw"])
        assert layout.drift() == []
    assert sim.alive() == set()


def test_parts_that_would_be_too_many_pieces_are_refused_with_what_to_do(sim: Simulator) -> None:
    sizes = {"small": 2**31, "large": 2**33 + 2 * MIB}
    data = plan(OWNERS, tensors={name: {**item, "shape": [sizes[name]]} for name, item in UNEVEN.items()})
    data["regions"]["r"] = {key: item for key, item in data["regions"]["r"].items() if key not in ("size", "chunk")}
    version = load_machine("mi300x-8").model_copy(update={"hip_version": "7.2.53211"})
    with pytest.raises(MachineError, match=r"HP309(?s:.*)add chunk: 2MiB to the region"):
        hipplan.compile(hipplan.load(data), machine=version)
    assert hipplan.compile(hipplan.load(data), machine=version.model_copy(update={"hip_version": "7.3.0"})).steps
    data["regions"]["r"]["chunk"] = "1GiB"
    program = hipplan.compile(hipplan.load(data), machine=version)
    assert [resource.device for resource in program.resources if resource.kind == "mapping"] == ["gpu.0"] * 2 + [
        "gpu.1"
    ] * 9
