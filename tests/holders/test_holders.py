"""Holders: `hipplan up`, `down`, `replace` and `ps`, and attach() with the same names, addresses and bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError, HeldError
from hipplan.holders import names, requests
from hipplan.layout.verbs import VERBS
from tests.conftest import Simulator
from tests.descriptors import descriptors
from tests.started import run

WAIT_S = 120.0
"""A limit for processes that hang."""

Held = Callable[..., dict[str, Any]]


def f32(layout: hipplan.Layout, name: str, sim: Simulator) -> set[float]:
    """The values of a tensor, read from the simulator and not by hipplan."""
    piece = layout[name]
    return set(memoryview(sim.read(piece.address, piece.size)).cast("f"))


def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true that depends on another process."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition stays false"
        time.sleep(0.005)


def attached() -> list[int]:
    """Process IDs of the attached processes."""
    return [client["pid"] for client in requests.status("w")["attached"]]


def code(error: Any) -> str:
    return str(error.value.diagnostics[0].code)


def test_an_attached_layout_has_the_same_names_addresses_and_bytes(
    held: Held, sim: Simulator, plan: Path, tmp_path: Path
) -> None:
    held("--var", "value=3")
    hipplan.attach("w").close()  # what a process opens only once is open from now on
    opened = descriptors(but="hipsim")
    program = hipplan.compile(hipplan.load(plan), "sim-2")
    with hipplan.attach("w") as layout:
        assert [*layout] == [resource.name for resource in program.resources if not resource.name.startswith("#")]
        assert layout["model.b"].address == layout["model"].address + (2 << 20)
        assert layout["range[0]"].address == layout["range"].address + (4 << 20)
        assert f32(layout, "model.a", sim) == {3.0}
        assert f32(layout, "model.b", sim) == {2.5}
        layout.save("range[0]", tmp_path / "range.bin")
        assert set((tmp_path / "range.bin").read_bytes()) == {7}
        assert layout.verify().mismatches() == []
        assert attached() == [os.getpid()]
        first = layout["model"].address, layout["range"].address
    until(lambda: attached() == [])
    with hipplan.attach("w") as layout:
        assert (layout["model"].address, layout["range"].address) == first
    assert sim.alive() == set()
    assert descriptors(but="hipsim") == opened


def test_several_layouts_attach_at_once(held: Held, sim: Simulator) -> None:
    held()
    with hipplan.attach("w") as layout, hipplan.attach("w", addresses="any") as other:
        assert attached() == [os.getpid()] * 2
        assert layout["model"].address != other["model"].address
        assert f32(layout, "model.b", sim) == f32(other, "model.b", sim) == {2.5}


def test_attach_fails_if_an_address_is_taken(held: Held, sim: Simulator) -> None:
    held()
    with hipplan.attach("w"):
        with pytest.raises(ApplyError) as caught:
            hipplan.attach("w")
        assert code(caught) == "HP404"
        assert 'addresses="any"' in str(caught.value)
        assert "the layout 'weights' has 'range' there" in str(caught.value)
        assert len(attached()) == 1


def test_attached_processes_cannot_write_by_default(held: Held, sim: Simulator) -> None:
    held()
    with hipplan.attach("w") as layout:
        assert dict(layout["model"].resource.access) == {"gpu.0": "r", "gpu.1": "r"}
        with pytest.raises(ApplyError) as caught:
            layout.fill("model.a", 0.0)
        assert code(caught) == "HP213"
    with pytest.raises(HeldError) as refused:
        hipplan.attach("w", access="rw")
    assert code(refused) == "HP454"


def test_all_processes_see_what_an_attached_process_writes(held: Held, sim: Simulator) -> None:
    held("--access", "rw")
    with hipplan.attach("w", access="rw") as layout, hipplan.attach("w", addresses="any") as other:
        layout.fill("model.a", 9.0)
        assert f32(other, "model.a", sim) == {9.0}
        assert dict(layout["model"].resource.access) == {"gpu.0": "rw", "gpu.1": "r"}
    with hipplan.attach("w") as later:
        assert f32(later, "model.a", sim) == {9.0}


def test_an_attached_layout_refuses_changes_of_its_memory(held: Held, sim: Simulator) -> None:
    held("--access", "rw")
    with hipplan.attach("w", access="rw") as layout:
        changes = {
            "grow": lambda: layout.grow("model", by="2MiB"),
            "shrink": lambda: layout.shrink("model", by="2MiB"),
            "remap": lambda: layout.remap("model"),
            "remap of a part": lambda: layout.remap("model", part="..2MiB"),
            "sleep": lambda: layout.sleep("model"),
            "wake": lambda: layout.wake(),
            "update": lambda: layout.update({"hipplan": 1, "devices": {"gpu": {"count": 1}}}),
        }
        assert changes.keys() > {verb.call for verb in VERBS.values() if not verb.if_attached}
        for change in changes.values():
            with pytest.raises(ApplyError) as caught:
                change()
            assert code(caught) == "HP420"
        layout.seal("model")
        assert dict(layout["model"].resource.access) == {"gpu.0": "r", "gpu.1": "r"}
        layout.unseal("model")
        assert layout.verify().mismatches() == []


def test_down_is_refused_while_a_process_is_attached(held: Held, sim: Simulator, capsys: Any) -> None:
    held()
    with hipplan.attach("w") as layout:
        assert run(["down", "w"]) == 4
        errors = capsys.readouterr().err
        assert "HP453" in errors
        assert str(os.getpid()) in errors
        assert run(["down", "w", "--wait", "--timeout", "0.05"]) == 4
        assert layout.lost == {}
    until(lambda: attached() == [])
    assert run(["down", "w"]) == 0
    with pytest.raises(HeldError) as caught:
        hipplan.attach("w")
    assert code(caught) == "HP452"


def test_while_down_waits_attach_is_refused(held: Held, sim: Simulator) -> None:
    held()
    layout = hipplan.attach("w")
    down = subprocess.Popen([sys.executable, "-m", "hipplan", "down", "w", "--wait"], stdout=subprocess.PIPE)
    until(lambda: requests.status("w")["state"] == "ending")
    with pytest.raises(HeldError) as caught:
        hipplan.attach("w", addresses="any")
    assert code(caught) == "HP453"
    assert layout.lost == {}
    layout.close()
    assert b"4MiB on gpu.0, 2MiB on gpu.1 freed" in down.communicate()[0]
    assert down.returncode == 0


def test_a_down_that_waits_is_cancelled_when_it_is_killed(held: Held, sim: Simulator) -> None:
    held()
    with hipplan.attach("w"):
        down = subprocess.Popen([sys.executable, "-m", "hipplan", "down", "w", "--wait"])
        until(lambda: requests.status("w")["state"] == "ending")
        down.kill()
        down.wait()
        until(lambda: requests.status("w")["state"] == "ready")


def test_attached_processes_keep_their_memory_after_down_with_force(held: Held, sim: Simulator, capsys: Any) -> None:
    held()
    with hipplan.attach("w") as layout:
        assert run(["down", "w", "--force", "--format", "json"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert [process["pid"] for process in printed["attached"]] == [os.getpid()]
        assert layout.lost == {"w": "closed"}
        assert f32(layout, "model.b", sim) == {2.5}
        assert layout.verify().mismatches() == []
    assert layout.lost == {}


def test_down_with_force_says_which_memory_waits_for_attached_processes(held: Held, plan: Path, capsys: Any) -> None:
    """What was replaced does; what replaced it is freed at once if no process is attached to it."""
    held()
    with hipplan.attach("w"):
        assert run(["replace", "w", str(plan), "--var", "value=5", "--quiet"]) == 0
        assert run(["down", "w", "--force"]) == 0
        said = capsys.readouterr().out
        assert "freed; these processes keep memory that was replaced until they detach:\n" in said
        assert f"  process {os.getpid()} (" in said

    held()
    with hipplan.attach("w"):
        assert run(["down", "w", "--force"]) == 0
        assert " is freed when these processes detach:\n" in capsys.readouterr().out


def test_attached_processes_keep_their_memory_when_the_holder_is_killed(held: Held, sim: Simulator) -> None:
    process = held()["pid"]
    with hipplan.attach("w") as layout:
        os.kill(process, signal.SIGKILL)
        until(lambda: layout.lost == {"w": "ended"})
        assert f32(layout, "model.b", sim) == {2.5}
        held("--var", "value=4")  # the name is free at once
        with hipplan.attach("w", addresses="any") as other:
            assert f32(other, "model.a", sim) == {4.0}
            assert f32(layout, "model.a", sim) == {1.0}


def test_a_killed_holder_is_listed_until_down(held: Held, capsys: Any) -> None:
    os.kill(held()["pid"], signal.SIGKILL)
    until(lambda: [(name, runs) for name, _, runs in names.known() if name == "w"] == [("w", False)])
    assert run(["ps"]) == 0
    assert "w: failed" in capsys.readouterr().out
    assert run(["down", "w"]) == 0
    assert [name for name, _, _ in names.known() if name == "w"] == []


def test_replace_switches_when_all_memory_is_filled(held: Held, sim: Simulator, plan: Path) -> None:
    held()
    with hipplan.attach("w") as layout:
        assert run(["replace", "w", str(plan), "--var", "value=5", "--quiet"]) == 0
        assert layout.lost == {"w": "replaced"}
        assert f32(layout, "model.a", sim) == {1.0}
        with hipplan.attach("w", addresses="any") as other:
            assert f32(other, "model.a", sim) == {5.0}
            generations = [generation["generation"] for generation in requests.status("w")["generations"]]
            assert generations == [1, 2]
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.a", sim) == {5.0}
        assert layout.lost == {}
    assert [generation["generation"] for generation in requests.status("w")["generations"]] == [2]


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        ("hipplan: 1\nregions: {x: {sise: 1MiB}}\n", 2, "HP101"),
        ("hipplan: 1\nbuffers: {x: {kind: pinned, size: 1MiB}}\n", 2, "HP450"),
        ("hipplan: 1\ndevices: {gpu: {count: 1}}\nregions: {x: {device: gpu.0, size: 1TiB}}\n", 3, "HP301"),
        ("hipplan: 1\nrequires: {hip: '>=99'}\nregions: {x: {size: 2MiB}}\n", 3, "HP312"),
    ],
)
def test_the_old_memory_stays_if_replace_fails(
    held: Held, sim: Simulator, tmp_path: Path, capfd: Any, text: str, expected: int, message: str
) -> None:
    held()
    other = tmp_path / "other.yaml"
    other.write_text(text)
    assert run(["replace", "w", str(other)]) == expected
    assert message in capfd.readouterr().err
    status = requests.status("w")
    assert status["state"] == "ready"
    assert status["failed"]
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.a", sim) == {1.0}


def test_replace_is_refused_if_old_and_new_memory_do_not_fit(folder: Path, tmp_path: Path, capfd: Any) -> None:
    plan = tmp_path / "large.yaml"
    plan.write_text("hipplan: 1\ndevices: {gpu: {count: 1}}\nregions: {x: {device: gpu.0, size: 120GiB}}\n")
    assert run(["up", str(plan), "--name", "w", "--quiet"]) == 0
    assert run(["replace", "w", str(plan)]) == 3
    errors = capfd.readouterr().err
    assert "HP301" in errors
    assert "48GiB more than is free" in errors
    assert run(["down", "w", "--quiet"]) == 0
    assert run(["up", str(plan), "--name", "w", "--quiet"]) == 0
    assert run(["down", "w", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("text", "expected", "message"),
    [
        ("hipplan: 1\nregions: {x: {sise: 1MiB}}\n", 2, "HP101"),
        (
            "hipplan: 1\npeers: all\ndevices: {gpu: {count: 2}}\nregions: {x: {device: gpu.0, size: 1MiB}}\n",
            2,
            "peer link",
        ),
        ("hipplan: 1\nbuffers: {x: {kind: managed, size: 1MiB}}\nstreams: {s: {}}\n", 2, "'s'"),
        ("hipplan: 1\n", 2, "nothing for a holder"),
        ("hipplan: 1\ndevices: {gpu: {count: 1}}\nregions: {x: {device: gpu.0, size: 1TiB}}\n", 3, "HP301"),
    ],
)
def test_up_fails_without_leftovers_for_a_plan_that_cannot_be_held(
    folder: Path, tmp_path: Path, capfd: Any, text: str, expected: int, message: str
) -> None:
    plan = tmp_path / "other.yaml"
    plan.write_text(text)
    assert run(["up", str(plan), "--name", "w"]) == expected
    assert message in capfd.readouterr().err
    assert [*names.known()] == []
    assert [*(folder / "hipplan").iterdir()] == []


def test_a_name_has_one_holder(held: Held, plan: Path, capfd: Any) -> None:
    process = held()["pid"]
    assert run(["up", str(plan), "--name", "w"]) == 4
    assert "HP451" in capfd.readouterr().err
    for name in ("no/name", "_", "-x", "x" * 65):
        assert run(["up", str(plan), f"--name={name}"]) == 2
        rule = f"'{name}' is not 1 to 64 letters, digits, - and _, the first of them a letter or a digit\n"
        assert f"hipplan up: error: --name: {rule}" in capfd.readouterr().err
    assert requests.status("w")["pid"] == process


def test_a_command_of_hipplan_attach_finds_its_holder_in_the_environment(held: Held) -> None:
    held()
    script = "import hipplan; print(hipplan.attach()['model.a'].shape)"
    command = [sys.executable, "-m", "hipplan", "attach", "w", "--", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("(512, 1024)\n", "", 0)


def test_a_holder_is_found_by_the_path_of_its_socket(held: Held, folder: Path, sim: Simulator) -> None:
    held()
    with hipplan.attach(f"{folder}/hipplan/held-w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}


def test_attach_waits_until_all_memory_is_filled(folder: Path, plan: Path, sim: Simulator) -> None:
    assert run(["up", str(plan), "--name", "w", "--no-wait", "--quiet"]) == 0
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}
    assert run(["down", "w", "--wait", "--quiet"]) == 0


def test_ps_shows_what_is_held(held: Held, capsys: Any) -> None:
    process = held()["pid"]
    assert run(["ps", "--format", "json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)["holders"]
    assert (status["name"], status["state"], status["pid"], status["context_bytes"]) == ("w", "ready", process, 0)
    assert status["generations"][0]["bytes"] == {"gpu.0": 4 << 20, "gpu.1": 2 << 20}
    assert run(["ps"]) == 0
    printed = capsys.readouterr().out
    assert "w: ready" in printed
    assert status["log"] in printed


def test_verify_works_for_holders_and_attached_processes(held: Held, folder: Path, capsys: Any) -> None:
    process = held()["pid"]
    assert [path.name for path in (folder / "hipplan").iterdir() if path.is_socket()] == ["held-w"]  # for all requests
    script = (
        "import hipplan, sys; layout = hipplan.attach('w', answer=True); print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        assert run(["verify", "--list", "--format", "json"]) == 0
        assert {*json.loads(capsys.readouterr().out)["processes"]} >= {process, client.pid}
        for number, checks in ((process, 3), (client.pid, 9)):
            assert run(["verify", str(number), "--format", "json"]) == 0
            assert json.loads(capsys.readouterr().out)["checks"] >= checks
        client.communicate()


def test_a_forked_child_neither_keeps_nor_ends_the_attachment_of_its_parent(held: Held, sim: Simulator) -> None:
    held()
    layout = hipplan.attach("w")
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    assert attached() == [os.getpid()]
    layout.close()
    until(lambda: attached() == [])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_driver_chooses_addresses_if_the_chosen_ones_are_taken(
    folder: Path, tmp_path: Path, sim: Simulator
) -> None:
    """Here a reservation of the plan has the address that hipplan would choose for the region."""
    from hipplan.program.window import start_for

    base = start_for("overlap")
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"""hipplan: 1
name: overlap
devices: {{gpu: {{count: 1}}}}
allocations: {{a: {{device: gpu.0, size: 2MiB}}}}
reservations:
  fixed: {{size: 2MiB, address: {base:#x}, address_policy: exact, mappings: [{{allocation: a, access: {{gpu.0: rw}}}}]}}
regions: {{model: {{device: gpu.0, size: 2MiB}}}}
""")
    assert run(["up", str(plan), "--name", "w", "--quiet"]) == 0
    with hipplan.attach("w") as layout:
        assert layout["fixed"].address == base
        assert layout["model"].address not in (None, base)
    assert run(["down", "w", "--wait", "--quiet"]) == 0
    plan.write_text(plan.read_text().replace(f"{base:#x}", "0x7fffffe00000"))  # where the stack ends
    assert run(["up", str(plan), "--name", "w", "--quiet"]) == 4


def test_a_holder_has_the_addresses_of_a_lock(
    folder: Path, plan: Path, tmp_path: Path, sim: Simulator, capfd: Any
) -> None:
    lock = tmp_path / "plan.lock"
    arguments = ["lock", str(plan), "--runtime", "sim", "--address-base", "0x6c0000000000", "-o", str(lock), "--quiet"]
    assert run(arguments) == 0
    assert run(["up", str(plan), "--name", "w", "--quiet", "--locked", str(lock)]) == 0
    with hipplan.attach("w") as layout:
        assert layout["range"].address == 0x6C0000000000
    assert run(["replace", "w", str(plan), "--locked", str(lock), "--var", "value=2"]) == 2
    assert "HP320" in capfd.readouterr().err
    assert run(["down", "w", "--wait", "--quiet"]) == 0


def test_sealed_memory_is_read_only_for_writers_until_they_unseal_it(folder: Path, plan: Path, sim: Simulator) -> None:
    plan.write_text(plan.read_text().replace("    chunk: 2MiB\n", "    chunk: 2MiB\n    seal: true\n"))
    assert run(["up", str(plan), "--name", "w", "--quiet", "--access", "rw"]) == 0
    with hipplan.attach("w", access="rw") as layout:
        with pytest.raises(ApplyError) as caught:
            layout.fill("model.a", 0.0)
        assert "sealed" in str(caught.value)
        layout.fill("range[0]", 1, dtype="u8")
        layout.unseal("model")
        layout.fill("model.a", 3.0)
        assert f32(layout, "model.a", sim) == {3.0}
    assert run(["down", "w", "--wait", "--quiet"]) == 0


@pytest.mark.parametrize(("visible", "printed"), [("1,0", "{1.0} 7"), ("1", "HP454"), ("0", "HP454")])
def test_devices_are_identified_by_their_uuids(held: Held, visible: str, printed: str) -> None:
    """Their ordinals may differ in the attached process, which must see all devices that hold memory."""
    held()
    script = (
        "import hipplan\n"
        "try:\n"
        "    layout = hipplan.attach('w')\n"
        "    values = {float(value) for value in layout.read('model.a').ravel()}\n"
        "    print(values, layout.read('range[0]').max(), len(layout.drift()) or '')\n"
        "except hipplan.HeldError as error:\n"
        "    print(error.diagnostics[0].code)\n"
    )
    environment = os.environ | {"HIP_VISIBLE_DEVICES": visible}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == printed


def test_attached_ranges_have_the_sizes_of_the_plan(held: Held, sim: Simulator) -> None:
    held()
    with hipplan.attach("w") as layout:
        assert (layout["range"].size, layout["model"].size) == (8 << 20, 4 << 20)


def test_ps_lists_the_log_of_a_failed_up_with_no_wait(folder: Path, tmp_path: Path, capsys: Any) -> None:
    plan = tmp_path / "wrong.yaml"
    plan.write_text("hipplan: 1\nregions: {x: {sise: 1MiB}}\n")
    assert run(["up", str(plan), "--name", "w", "--no-wait", "--quiet"]) in (0, 4)  # 4: it has failed by now
    until(lambda: not any(runs for _, _, runs in names.known()))
    assert run(["ps", "--format", "json"]) == 0
    (status,) = json.loads(capsys.readouterr().out)["holders"]
    assert status["state"] == "failed"
    assert "HP101" in Path(status["log"]).read_text()
    assert run(["down", "w", "--quiet"]) == 0
    assert [*names.known()] == []


@pytest.mark.parametrize("option", ["--filler=5000", "--filler=-1", "--starter=5000", f"--starter={2**70}"])
def test_internal_options_are_refused(folder: Path, plan: Path, option: str, capsys: Any) -> None:
    assert run(["up", str(plan), "--name", "w", option]) == 2
    assert "hipplan itself" in capsys.readouterr().err
    assert [*names.known()] == []


def test_memory_on_the_host_is_held_attached_and_slept(held: Held, plan: Path, sim: Simulator) -> None:
    regions = "regions:\n  model:\n    devices: [gpu.0, host]\n    sizes: [2MiB, 2MiB]\n    chunk: 2MiB\n"
    plan.write_text(f"hipplan: 1\ndevices: {{gpu: {{count: 2}}}}\n{regions}contents: {{model: {{value: 7}}}}\n")
    held()
    for _ in range(2):
        with hipplan.attach("w") as layout:
            assert layout["model"].devices == ("gpu.0", "host")
            assert set(layout.read("model")) == {7}
            assert layout.drift() == []
        assert run(["sleep", "w", "--quiet"]) == 0
        assert run(["wake", "w", "--quiet"]) == 0
