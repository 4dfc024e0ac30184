"""A C program has the memory of a holder: the same addresses and bytes as a Python program at the same time."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.cli.main import run
from hipplan.holders import requests
from tests.c.programs import STANDARDS, Program, build, by_name
from tests.conftest import not_under_tsan

Held = Callable[..., dict[str, Any]]


pytestmark = not_under_tsan


def sum_of(data: bytes) -> int:
    total = 0
    for byte in data:
        total = (total * 31 + byte) & (2**64 - 1)
    return total


@pytest.mark.parametrize("standard", STANDARDS)
def test_the_same_objects_as_in_python_at_the_same_time(held: Held, tmp_path: Path, standard: str) -> None:
    held()
    with Program(build(tmp_path, standard)) as program, hipplan.attach("w") as layout:
        program.attach()
        listed = by_name(program.do("list"))
        objects = [layout[name] for name in layout if layout[name].kind != "allocation"]
        assert [*listed] == [piece.name for piece in objects]
        devices = layout.program.devices
        for piece in objects:
            _, kind, address, size, dtype, device, writable, *more = listed[piece.name]
            shape = [int(extent) for extent in more if extent.isdigit()]
            uuid = "".join(word for word in more if word.startswith("GPU-"))
            assert (kind, int(address, 16), int(size)) == (piece.kind, piece.address, piece.size)
            assert (dtype, shape) == (str(piece.dtype), [*piece.shape])
            assert (writable == "1") == (not piece.read_only)
            measured = layout.program.measured
            assert measured is not None
            if piece.kind == "reservation":
                assert (device, uuid) == ("-2", "")
            else:
                assert (int(device), uuid) == (devices[piece.device], measured.devices[int(device)].uuid)
        for name in ("model.a", "range[0]"):
            code, _, moved = program.do("read", name)
            expected = layout.read(name).tobytes()
            assert (code, moved) == ("0", f"0 {sum_of(expected)}")
        assert len(requests.status("w")["attached"]) == 2
        assert program.text("detach") == (0, "")
        assert not layout.drift()


def test_a_plan_decides_what_a_c_program_may_write(held: Held, plan: Path, program: Program) -> None:
    plan.write_text(plan.read_text().replace("chunk: 2MiB", "chunk: 2MiB\n    attached: rw"))
    held()
    program.attach()
    assert by_name(program.do("list"))["model.b"][6] == "1"
    assert by_name(program.do("list"))["range[0]"][6] == "0"
    assert program.do("write", "model.b")[2].split()[0] == "0"
    with hipplan.attach("w") as layout:
        assert set(layout.read("model.b").tobytes()) == {0x5A}
    program.do("detach")
    code, text = program.text("attach", "w", "rw")
    assert code == 454 and "does not allow write access" in text


def test_less_than_the_plan_allows(held: Held, program: Program) -> None:
    held("--access", "rw")
    program.attach("w", "rw")
    assert {words[6] for name, words in by_name(program.do("list")).items() if name != "range"} == {"1"}
    program.do("detach")
    program.attach("w", "r")
    assert {words[6] for words in by_name(program.do("list")).values()} == {"0"}
    program.do("detach")


def test_other_addresses_where_those_of_the_plan_are_taken(held: Held, program: Program, path: Path) -> None:
    held()
    program.attach()
    first = by_name(program.do("list"))
    code, text = program.text("attach", "w")  # the program's first layout is there
    assert code == 404 and "' cannot be at " in text and "undone: " in text and "nothing leaked" in text
    assert "hipplan_options.addresses" in text
    with Program(path) as other:
        other.attach("w", "-", "any")
        assert {*first} == {*by_name(other.do("list"))}
        assert other.do("read", "model.b")[2].split()[0] == "0"
        other.do("detach")


def test_attach_of_the_command_sets_the_holder(held: Held, path: Path) -> None:
    held()
    command = [sys.executable, "-m", "hipplan", "attach", "w", "--", str(path)]
    done = subprocess.run(command, input="attach\nfind model.b\ndetach\n", capture_output=True, text=True)
    code, text, _, found, *_ = done.stdout.splitlines()
    assert (code, text, found, done.stderr) == ("0", "", "0", "")


def test_a_holder_by_the_path_of_its_socket(held: Held, folder: Path, program: Program) -> None:
    held()
    program.attach(str(folder / "hipplan" / "held-w"))
    program.do("detach")
    assert program.text("attach", str(folder / "nothing"))[0] == 452


@pytest.mark.parametrize("told", ["{}", "{}//", "{}/../hipplan"])
def test_a_holder_whose_socket_was_removed_by_the_lock_of_its_name(
    held: Held, folder: Path, path: Path, told: str
) -> None:
    held()
    (folder / "hipplan" / "held-w").unlink()
    with Program(path, HIPPLAN_SOCKETS=told.format(folder / "hipplan")) as program:
        program.attach()
        program.do("detach")
    with Program(path, HIPPLAN_SOCKETS=str(folder / "other")) as program:
        assert program.text("attach", "w")[0] == 452


def test_too_few_descriptors_for_the_memory(held: Held, program: Program) -> None:
    held()
    program.attach()
    program.do("detach")
    hard = resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE)[1]
    opened = [*map(int, os.listdir(f"/proc/{program.process.pid}/fd"))]  # noqa: PTH208
    for room in range(1, 5):
        resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE, (max(opened) + room, hard))
        code, text = program.text("attach", "w")
        assert code in (0, 455) and ("ulimit -n" in text) == (code == 455), text
        if code == 0:
            program.do("detach")
    assert [*map(int, os.listdir(f"/proc/{program.process.pid}/fd"))] == opened  # noqa: PTH208
    resource.prlimit(program.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    program.attach()
    program.do("detach")


@pytest.mark.parametrize("told", [{}, {"HIPPLAN_RUNTIME": None}, {"HIPPLAN_RUNTIME": "auto"}])
def test_a_library_of_the_holders_kind(held: Held, path: Path, told: dict[str, str | None]) -> None:
    held()
    with Program(path, **told) as program:
        program.attach()
        program.do("detach")


def test_what_is_told_is_opened(held: Held, path: Path, tmp_path: Path) -> None:
    held()
    with Program(path, HIPPLAN_RUNTIME=str(tmp_path / "none.so")) as program:
        code, text = program.text("attach", "w")
        assert code == 407 and "none.so" in text
    with Program(path, HIPPLAN_RUNTIME=None) as program:
        code, text = program.text("attach", "w", "-", "-", "60", "amd")
        assert code == 407 and "libamdhip64.so.7" in text


def test_a_forked_child_leaves_the_layout_alone(held: Held, program: Program) -> None:
    held()
    program.attach()
    found, why, attached, why_not, *rest = program.do("fork", "w")
    assert (found, attached) == ("458", "407")
    assert "forked child" in why and "was forked from one" in why_not
    assert [line for line in rest if not line.startswith(" ")] == ["ended", "0", "", "0"]
    assert program.do("lost") == ["no"]
    assert program.do("read", "model.b")[2].split()[0] == "0"
    assert len(requests.status("w")["attached"]) == 1
    assert program.text("detach") == (0, "")


def test_lost_says_why(held: Held, program: Program, plan: Path) -> None:
    held()
    program.attach()
    assert program.do("lost") == ["no"]
    bytes_before = program.do("read", "model.b")
    assert run(["replace", "w", str(plan), "--quiet", "--lose", "*"]) == 0
    assert program.do("lost") == ["replaced"]
    assert program.do("read", "model.b") == bytes_before
    assert run(["down", "w", "--force", "--quiet"]) == 0
    assert program.do("lost") == ["closed"]
    assert program.do("read", "model.b") == bytes_before
    assert program.text("detach") == (0, "")


def test_lost_of_a_holder_that_was_killed(held: Held, program: Program) -> None:
    process = held()["pid"]
    program.attach()
    os.kill(process, signal.SIGKILL)
    while program.do("lost") == ["no"]:
        pass
    assert program.do("lost") == ["ended"]
    assert program.do("read", "model.b")[2].split()[0] == "0"
    assert program.text("detach") == (0, "")
    # The kernel closes the sockets of a killed process in turn: meanwhile the holder "has ended" (HP455).
    while (code := program.text("attach", "w")[0]) == 455:
        pass
    assert code == 452
    run(["down", "w", "--quiet"])


def test_a_holder_that_sleeps(held: Held, program: Program) -> None:
    held()
    assert run(["sleep", "w", "--quiet"]) == 0
    code, text = program.text("attach", "w")
    assert code == 441 and "hipplan wake w" in text
    assert run(["wake", "w", "--quiet"]) == 0
    program.attach()
    program.do("detach")


def test_a_stopped_holder_is_waited_for_as_long_as_the_program_says(held: Held, program: Program) -> None:
    process = held()["pid"]
    os.kill(process, signal.SIGSTOP)
    code, text = program.text("attach", "w", "-", "-", "0.2")
    os.kill(process, signal.SIGCONT)
    assert code == 455 and "it gave no sign of life for 0.2 s" in text


def test_a_process_whose_locale_has_a_decimal_comma(held: Held, path: Path, tmp_path: Path) -> None:
    compiled = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales/de_DE").exists():
        pytest.skip("needs localedef and its locales")
    subprocess.run(compiled, check=True, capture_output=True)
    held()
    with Program(path, LC_ALL="de_DE.UTF-8", LOCPATH=str(tmp_path)) as program:
        assert program.do("number") == ["0,5"]
        program.attach("w", "-", "-", "2,5")
        program.do("detach")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing"], 452, "there is no holder 'nothing'"),
        (["a.b"], 451, "'a.b' is not 1 to 64 letters"),
        (["-"], 452, "no holder was named"),
        (["w", "x"], 458, 'hipplan_options.access is NULL, "r" or "rw"'),
        (["w", "-", "other"], 458, 'hipplan_options.addresses is NULL, "same" or "any"'),
        (["w", "-", "-", "-1"], 458, "timeout_s is a number of seconds"),
        (["w", "-", "-", "nan"], 458, "timeout_s is a number of seconds"),
    ],
)
def test_wrong_arguments(kept: int, program: Program, words: list[str], code: int, said: str) -> None:
    given, text = program.text("attach", *words)
    assert given == code and said in text and text.startswith(f"error[HP{code}]: ")


def test_wrong_use(kept: int, program: Program) -> None:
    program.attach()
    code, text = program.text("find", "model.x")
    assert code == 458 and "the layout has no 'model.x'" in text
    lines = program.do("wrong")
    assert [line for line in lines if line.isdigit()] == ["458", "458", "458", "458", "458", "0"]
    assert lines[-2:] == [f"{hipplan.__version__} 0", "ended"]
    assert "not refused" not in lines


def test_a_name_in_a_folder_that_others_may_enter(kept: int, path: Path, tmp_path: Path) -> None:
    open_ = tmp_path / "open"
    open_.mkdir(0o755)
    with Program(path, HIPPLAN_SOCKETS=str(open_)) as program:
        assert program.text("attach", "w")[0] == 456
    with Program(path, HIPPLAN_SOCKETS="relative") as program:
        code, text = program.text("attach", "w")
        assert code == 456 and text.endswith("\n  hint: give it an absolute path")
