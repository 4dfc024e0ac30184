"""hipplan lock, and apply --locked: the same every time, or a reason why not."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import hipplan as library
from hipplan.errors import MachineError, PlanError
from hipplan.layout.prepare import prepare
from hipplan.machines.runtimes import choose
from hipplan.program.difference import difference
from hipplan.program.lock import Locked, lock, to_yaml
from hipplan.program.program import Program
from hipplan.program.window import GIB, WINDOW, WINDOW_END
from tests.cli.conftest import Run
from tests.conftest import PLANS, ROOT, Simulator, not_under_tsan

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
PLAN = """hipplan: 1
name: three
vars: {chunks: 2}
devices: {gpu: {count: 2}}
allocations:
  kv: {device: gpu.1, size: 5000000, count: $(chunks)}
reservations:
  first: {size: 3GiB, access: {gpu.1: rw}, mappings: [{allocation: kv.*}]}
  own: {size: 2MiB, address: 0x690000000000, address_policy: exact}
  aligned: {size: 2MiB, alignment: 8GiB}
"""


def compiled(plan: Any = QUICKSTART, machine: str = "sim-2", **more: Any) -> Program:
    return library.compile(library.load(plan, **more), library.machine(machine))


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """The lock of PLAN on sim-2."""
    path = tmp_path / "plan.lock"
    path.write_text(to_yaml(lock(compiled(PLAN))))
    return path


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)
def test_a_lock_is_the_same_every_time_and_reads_back(plan: Path, tmp_path: Path) -> None:
    text = to_yaml(lock(compiled(plan)))
    (tmp_path / "lock").write_text(text)

    assert to_yaml(lock(compiled(plan))) == text
    assert Locked(tmp_path / "lock").lock == lock(compiled(plan))


def test_an_address_is_not_0(locked: Path) -> None:
    """The driver would choose one."""
    text = locked.read_text()
    locked.write_text(text.replace("own: 0x690000000000", "own: 0x0"))
    assert locked.read_text() != text
    with pytest.raises(PlanError, match="'own' must be at least 1"):
        Locked(locked)


def test_a_lock_is_for_people_too(locked: Path) -> None:
    text = locked.read_text()

    for line in (
        "  name: three",
        "    chunks: 2",
        "  runtime: sim",
        "    gpu.1:\n      ordinal: 1\n",
        "      granularity_recommended: 4096",
        "  kv.0: 5001216",
        "  own: 0x690000000000",
    ):
        assert f"{line}" in text


def test_addresses_lie_apart_aligned_in_the_window_and_around_what_is_exact() -> None:
    program = compiled(PLAN)
    for base in (None, 0x68FF_0000_0000):
        result = lock(program, base).addresses
        sizes = {"first": 3 * GIB, "own": 2 << 20, "aligned": 2 << 20}
        ranges = sorted((at, at + sizes[name]) for name, at in result.items())

        assert result["own"] == 0x6900_0000_0000
        assert result["aligned"] % (8 * GIB) == 0
        assert all(at >= WINDOW and end <= WINDOW_END for at, end in ranges)
        assert all(end <= at for (_, end), (at, _) in pairwise(ranges))
    other = compiled(PLAN.replace("name: three", "name: four"))
    assert lock(other).addresses["first"] != lock(program).addresses["first"]


def test_more_addresses_than_there_is_room_for_is_reported() -> None:
    plan = PLAN.replace("size: 3GiB", "size: 9TiB")
    with pytest.raises(MachineError) as caught:
        lock(compiled(plan))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP322"]
    assert lock(compiled(plan), 0x1000_0000_0000).addresses["first"] == 0x1000_0000_0000
    with pytest.raises(MachineError) as caught:
        lock(compiled(PLAN), 2**64 - 4096)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP322"]


@not_under_tsan
def test_the_locked_addresses_are_what_an_apply_gets(sim: Simulator, locked: Path) -> None:
    with library.apply(PLAN, runtime="sim", locked=locked) as layout:
        for name, address in Locked(locked).lock.addresses.items():
            assert layout[name].address == address


def test_tensors_in_another_order_are_another_plan(locked: Path) -> None:
    def plan(*names: str) -> dict[str, Any]:
        tensors = {name: {"dtype": "f32", "shape": [64 if name == "a" else 1024]} for name in names}
        return {"hipplan": 1, "name": "p", "regions": {"r": {"tensors": tensors}}}

    locked.write_text(to_yaml(lock(compiled(plan("a", "b")))))
    Locked(locked).placed(compiled(plan("a", "b")))
    with pytest.raises(PlanError, match=r"HP320.*'p' is not the locked plan"):
        Locked(locked).placed(compiled(plan("b", "a")))


def test_what_a_lock_has_placed_stays_there_in_an_update(sim: Simulator, locked: Path) -> None:
    held = Locked(locked).placed(prepare(library.load(PLAN), choose("sim"), None))
    wider = difference(held, prepare(library.load(PLAN, {"chunks": 3}), choose("sim"), None))

    assert {step.name for step in wider.additions} == {"kv.2", "first[2]"}
    assert not wider.changes and not wider.released


@not_under_tsan
def test_an_address_that_is_taken_rolls_back(sim: Simulator, locked: Path) -> None:
    with library.apply(PLAN, runtime="sim", locked=locked):
        before = sim.alive()
        with pytest.raises(library.ApplyError) as caught:
            library.apply(PLAN, runtime="sim", locked=locked)
        assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP404"]
        assert "--address-base" in caught.value.diagnostics[0].hint
        assert sim.alive() == before


PROCESSES = """
import ctypes, mmap, os, sys
import hipplan.api, hipplan.layout.layout, hipplan.layout.prepare, hipplan.program.lock
hipplan.program.lock.Locked(sys.argv[2]).placed(hipplan.compile(hipplan.load(sys.argv[1]), hipplan.machine("sim-2")))
for _ in range(25):
    if os.fork() == 0:
        with hipplan.apply(sys.argv[1], runtime="sim", locked=sys.argv[2]) as layout:
            told = [layout[name].address for name in ("first", "own", "aligned")]
        os.write(1, (" ".join(map(hex, told)) + "\\n").encode())
        os._exit(0)
    assert os.wait()[1] == 0
print(ctypes.addressof(ctypes.c_char.from_buffer(mmap.mmap(-1, 4096))))
"""


@pytest.mark.in_turns
@not_under_tsan
def test_a_hundred_processes_get_the_same_addresses(locked: Path, tmp_path: Path) -> None:
    """Four times 25, because starting takes the time; the kernel moves everything else about in each 25."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    command = [sys.executable, "-c", PROCESSES, str(plan), str(locked)]

    def several(_: int) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    with ThreadPoolExecutor(2) as pool:
        reported = list(pool.map(several, range(4)))
    wanted = " ".join(map(hex, Locked(locked).lock.addresses.values()))

    assert [line for *lines, _ in reported for line in lines] == [wanted] * 100
    assert len({elsewhere for *_, elsewhere in reported}) > 2


def test_another_plan_is_reported(locked: Path, tmp_path: Path) -> None:
    def told(plan: str, **more: Any) -> list[str]:
        with pytest.raises(PlanError) as caught:
            Locked(locked).placed(compiled(plan, **more))
        assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"HP320"}
        assert all(str(diagnostic.span).startswith(f"{locked}:") for diagnostic in caught.value.diagnostics)
        return [diagnostic.summary for diagnostic in caught.value.diagnostics]

    assert told(PLAN.replace("5000000", "4MiB")) == ["'three' is not the locked plan"]
    assert told(PLAN, vars={"chunks": 3}) == ["the variable 'chunks' is 3; in the lock it is 2"]


def test_another_machine_is_reported_figure_by_figure(locked: Path) -> None:
    def told(machine: Any) -> list[str]:
        with pytest.raises(MachineError) as caught:
            Locked(locked).placed(library.compile(library.load(PLAN), machine))
        assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"HP321"}
        assert all(str(diagnostic.span).startswith(f"{locked}:") for diagnostic in caught.value.diagnostics)
        return [diagnostic.summary for diagnostic in caught.value.diagnostics]

    sim_2 = library.machine("sim-2")
    device = sim_2.devices[1]
    changed = device.model_copy(update={"arch": "gfx90a", "granularity_recommended": 2 << 20})
    other = sim_2.model_copy(update={"devices": [sim_2.devices[0], changed], "hip_version": "6.4.0"})

    summaries = told(other)
    assert summaries[0] == f"the hip version is 6.4.0; in the lock it is {sim_2.hip_version}"
    assert summaries[1] == f"the arch of gpu.1 is gfx90a; in the lock it is {device.arch}"
    assert "'kv.0' is 6MiB; in the lock it is 4884KiB" in summaries
    assert "the runtime is amd; in the lock it is sim" in told(library.machine("mi300x-8"))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("hipplan_lock: 2", "hipplan_lock: 3"), "HP104"),
        (("hipplan_lock: 2\n", ""), "HP102"),
        (("  digest: ", "  digest: x"), "HP105"),
        (("sizes:", "size:"), "HP101"),
        (("  own: 0x690000000000", "  own: -1"), "HP105"),
        (("ordinal: 0", "ordinal: zero"), "HP103"),
        (("machine:", "machine: ["), "HP004"),
    ],
)
def test_a_file_that_is_no_lock_is_reported_where(locked: Path, change: tuple[str, str], code: str) -> None:
    locked.write_text(locked.read_text().replace(*change, 1))
    with pytest.raises(PlanError) as caught:
        Locked(locked)

    assert code in [diagnostic.code for diagnostic in caught.value.diagnostics]
    assert str(caught.value.diagnostics[0].span).startswith(f"{locked}:")


def test_the_command_locks_checks_and_applies(tmp_path: Path, hipplan: Run) -> None:
    plan, file = tmp_path / "plan.yaml", tmp_path / "plan.lock"
    plan.write_text(PLAN)
    done = hipplan("lock", plan, "--machine", "sim-2", "-o", file)
    shown = hipplan("lock", plan, "--runtime", "sim")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert hipplan("lock", plan, "--runtime", "sim", "-o", "-", cwd=tmp_path).stdout == shown.stdout
    assert not (tmp_path / "-").exists()
    for line in ("  own: 0x690000000000", "  kv.1: 5001216", "pci: '0000:02:00.0'"):  # measured: it knows more
        assert line in shown.stdout
    same = hipplan("lock", plan, "--machine", "sim-2", "--check", file)
    assert (same.returncode, same.stdout) == (0, f"{file} is up to date\n")
    assert hipplan("lock", plan, "--machine", "mi300x-8", "--check", file).returncode == 3
    changed = hipplan("lock", plan, "--machine", "sim-2", "--check", file, "--var", "chunks=3")
    assert changed.returncode == 2
    assert "hint: --var chunks=2" in changed.stderr
    assert hipplan("lock", plan, "--machine", "sim-2", "--address-base", "12x").returncode == 2
    assert hipplan("lock", plan, "--machine", "sim-2", "-o", tmp_path / "no" / "folder").returncode == 2
    refused = hipplan("apply", plan, "--locked", file, "--once", "--runtime", "sim", "--var", "chunks=3")
    assert refused.returncode == 2
    assert "error[HP320]" in refused.stderr


def test_a_plan_that_includes_from_elsewhere_can_be_locked(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "part.yaml").write_text("hipplan: 1\nbuffers: {scratch: {kind: device, device: gpu, size: 1MiB}}\n")
    (tmp_path / "plans").mkdir()
    plan = tmp_path / "plans" / "plan.yaml"
    plan.write_text("hipplan: 1\ninclude: [../part.yaml]\ndevices: {gpu: {}}\n")

    assert hipplan("lock", plan, "--machine", "sim-2").returncode == 2
    allowed = hipplan("lock", plan, "--machine", "sim-2", "--include-anywhere")
    assert allowed.returncode == 0, allowed.stderr
    assert "scratch: 1048576" in allowed.stdout


@not_under_tsan
def test_the_command_applies_what_is_locked(tmp_path: Path, hipplan: Run, locked: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    done = hipplan("apply", plan, "--locked", locked, "--once", "--runtime", "sim")

    assert done.returncode == 0
    for address in Locked(locked).lock.addresses.values():
        assert f"{address:#x}" in done.stdout


def test_a_lock_for_a_machine_that_is_not_there_is_rehearsed_on_the_simulator(tmp_path: Path, hipplan: Run) -> None:
    lock_file = tmp_path / "a.lock"
    made = hipplan("lock", QUICKSTART, "--machine", "mi300x-8", "-o", lock_file)
    rehearsed = hipplan(
        "apply", QUICKSTART, "--machine", "mi300x-8", "--runtime", "sim", "--locked", lock_file, "--once"
    )
    address = Locked(lock_file).lock.addresses["model"]

    assert (made.returncode, rehearsed.returncode) == (0, 0), rehearsed.stderr
    assert "the lock is rehearsed on the simulator as mi300x-8; not compared: the driver itself" in rehearsed.stderr
    assert "uuid" in rehearsed.stderr
    assert f"{address:#x}" in rehearsed.stdout


def test_a_rehearsal_as_another_machine_is_refused(tmp_path: Path, hipplan: Run) -> None:
    lock_file = tmp_path / "a.lock"
    hipplan("lock", QUICKSTART, "--machine", "mi300x-8", "-o", lock_file)
    line = ["apply", QUICKSTART, "--runtime", "sim", "--locked", lock_file, "--once"]
    other, none = hipplan(*line, "--machine", "mi250x-8"), hipplan(*line)

    assert (other.returncode, none.returncode) == (3, 3)
    assert "HP321]: the arch of gpu.0 is gfx90a; in the lock it is gfx942" in other.stderr
    assert "HP321]: the runtime is sim; in the lock it is amd" in none.stderr
    assert "--machine" in none.stderr


def test_what_changed_in_the_plan_is_named_with_both_sizes(tmp_path: Path, locked: Path) -> None:
    changed = PLAN.replace("size: 5000000", "size: 7000000").replace("  own: {size: 2MiB,", "  new: {size: 2MiB,")
    with pytest.raises(PlanError) as raised:
        Locked(locked).placed(compiled(changed))

    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "HP320"
    sizes = "takes 6836KiB, 7MB asked; 4884KiB locked"
    assert diagnostic.notes[:2] == (f"differs: 'kv.0' {sizes}", f"differs: 'kv.1' {sizes}")
    assert "differs: 'own' is not there; 2MiB locked" in diagnostic.notes
    assert "differs: 'new' takes 2MiB, 2MiB asked; not locked" in diagnostic.notes
    assert not any("first[" in note for note in diagnostic.notes)


def test_a_change_that_no_size_shows_is_reported_as_that(locked: Path) -> None:
    with pytest.raises(PlanError, match="names and sizes of all objects are equal"):
        Locked(locked).placed(compiled(PLAN.replace("access: {gpu.1: rw}", "access: {gpu.1: rw, gpu.0: r}")))


def test_another_plan_on_another_machine_is_reported_both(locked: Path) -> None:
    with pytest.raises(PlanError, match=r"HP320(.|\n)*HP321"):
        Locked(locked).placed(compiled(PLAN.replace("5000000", "7000000"), machine="mi300x-8"))
