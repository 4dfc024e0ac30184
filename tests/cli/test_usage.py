"""Wrong arguments are reported with exit code 2 before anything is done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run, command
from tests.conftest import ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (["lock", QUICKSTART, "--machine", "sim-2", "--check", "a.lock", "-o", "b.lock"], "--check writes nothing"),
        (["lock", QUICKSTART, "--check", "a.lock", "--address-base", "0x680000000000"], "--check writes nothing"),
        (["lock", QUICKSTART, "--machine", "sim-2", "--address-base", "0xfffffffffffff000"], "is not an address"),
        (["lock", QUICKSTART, "--machine", "sim-2", "--runtime", "bogus"], "leave --runtime out"),
        (["preview", QUICKSTART, "--machine", "sim-2", "--runtime", "sim"], "leave --runtime out"),
        (["machine", "list", "--diff", "sim-1", "sim-2"], "leave list out"),
        (["machine", "list", "--runtime", "nonsense"], "--runtime is for measuring"),
        (["machine", "--diff", "sim-1", "sim-2", "--runtime", "sim"], "--runtime is for measuring"),
        (["validate", QUICKSTART, "--machine", "nope"], "error[HP110]: there is no machine profile 'nope'"),
        (["validate", QUICKSTART, "--machine", "/tmp"], "error[HP001]"),
        (["preview", QUICKSTART, "--machine", QUICKSTART], "error[HP014]"),
        (["machine", "show", "sim2"], "did you mean 'sim-2'?"),
    ],
    ids=str,
)
def test_wrong_usage_is_not_taken_for_a_machine_that_is_too_small(line: list[object], why: str, hipplan: Run) -> None:
    done = hipplan(*line)

    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["plan", "p.yaml"], "hipplan preview shows the steps and changes nothing"),
        (["destroy"], "frees everything when it ends"),
        (["status"], "hipplan verify --list"),
        (["lint"], "hipplan validate"),
        (["valdate", "p.yaml"], "did you mean 'validate'?"),
        (["plan.yaml"], "hipplan validate plan.yaml, or preview, or apply"),
        (["help", "plan"], "hipplan preview shows the steps"),
        (["apply", "--dry-run", "p.yaml"], "hipplan preview shows the steps"),
        (["apply", "-f", "p.yaml"], "hipplan apply plan.yaml"),
        (["apply", "p.yaml", "-auto-approve"], "hipplan never prompts"),
        (["preview", "p.yaml", "--json"], "--format json"),
        (["apply", "p.yaml", "-var", "a=1"], "--var NAME=VALUE"),
    ],
    ids=str,
)
def test_what_other_commands_call_it_finds_what_hipplan_has(line: list[str], hint: str, hipplan: Run) -> None:
    done = hipplan(*line)

    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            ["validate", "-dash.yaml"],
            "unexpected argument '-dash.yaml'; write ./-dash.yaml for the file of that name\n",
        ),
        (["validate", "-dash.yaml", "a"], "argument '-dash.yaml'; write ./-dash.yaml for the file of that name\n"),
        (["validate", "--strikt"], "unexpected argument '--strikt'; did you mean '--strict'?\n"),
        (["validate", "--strict"], "the following arguments are required: FILE\n"),
        (["validate", "-q", "--format=json"], "the following arguments are required: FILE\n"),
    ],
    ids=str,
)
def test_an_unknown_option_is_the_mistake_and_not_what_is_missing_then(
    line: list[str], said: str, tmp_path: Path, hipplan: Run
) -> None:
    (tmp_path / "-dash.yaml").write_text("hipplan: 1\n")
    done = hipplan(*line, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{said}  hint: see hipplan" in done.stderr


def test_help_of_a_verb_is_that_verbs_help(hipplan: Run) -> None:
    assert hipplan("help", "apply").stdout == hipplan("apply", "--help").stdout
    assert hipplan("help").stdout == hipplan("--help").stdout
    assert [hipplan("help", *more).returncode for more in ((), ("apply",))] == [0, 0]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--fail", "bogus"], "fault rule 'bogus': expected CALL@N=ERROR"),
        (["--fail", "hipMemMpa@1=2"], "fault rule 'hipMemMpa@1=2': no call hipMemMpa to fail; did you mean hipMemMap?"),
        (
            ["--hip-version", "5.7"],
            "'hip_version=5.7': the simulator offers the ABI of HIP 6.1 to 7.x only",
        ),
        (
            ["--hip-version", "9.9"],
            "'hip_version=9.9': the simulator offers the ABI of HIP 6.1 to 7.x only",
        ),
        (["--trace", "/no/such/trace"], "cannot write the trace /no/such/trace"),
    ],
    ids=str,
)
def test_a_simulator_that_cannot_start_runs_no_program(
    options: list[str], why: str, tmp_path: Path, hipplan: Run
) -> None:
    done = hipplan("sim", *options, "--", "touch", tmp_path / "ran")

    assert done.returncode == 2
    assert f"the simulator cannot start: {why}" in done.stderr
    assert not (tmp_path / "ran").exists()


FAILED_MAP = """
import ctypes
hip, wild = ctypes.CDLL("libamdhip64.so"), ctypes.c_void_p(4096)
handle, prop, size = ctypes.c_void_p(), (ctypes.c_int * 8)(1, 0, 1, 0), ctypes.c_size_t(2 << 20)
count, version = ctypes.c_int(), ctypes.c_int()
hip.hipGetDeviceCount(ctypes.byref(count)), hip.hipRuntimeGetVersion(ctypes.byref(version))
hip.hipMemCreate(ctypes.byref(handle), size, prop, ctypes.c_ulonglong(0))
code = hip.hipMemMap(wild, size, ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
print(count.value, version.value // 100_000, code)
"""
THREE = "hip_version=7.1.0\ndevice.0.name=a\ndevice.1.name=b\ndevice.2.name=c\n"
NOT_USED = "notice: HIPSIM_PROFILE is not used: --machine names the machine"


@pytest.mark.parametrize(
    ("options", "profile", "output", "not_used"),
    [
        (["--machine", "sim-1", "--hip-version", "7.2"], "", "1 702 1", False),
        (["--machine", "sim-1", "--hip-version", "7.2", "--quirk", "map_failure_hidden"], "", "1 702 0", False),
        (["--machine", "{file}"], "", "1 702 0", False),
        ([], THREE, "3 701 1", False),
        (["--quirk", "map_failure_hidden"], THREE, "3 701 0", False),
        (["--hip-version", "7.2"], THREE, "3 702 1", False),
        (["--machine", "{file}"], THREE, "1 702 0", True),
    ],
)
def test_quirks_and_the_machine_of_a_simulated_program(
    options: list[str], profile: str, output: str, not_used: bool, tmp_path: Path, hipplan: Run
) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text("name: m\nhip_version: 7.2.0\ndevices: [{name: g, memory: 1GiB}]\nquirks: [map_failure_hidden]\n")
    wanted = [option.format(file=file) for option in options]
    env = {"HIPSIM_LOG": "none"} | ({"HIPSIM_PROFILE": profile} if profile else {})
    done = hipplan("sim", *wanted, "--", sys.executable, "-c", FAILED_MAP, env=env)

    assert (done.returncode, done.stdout.strip()) == (0, output), done.stderr
    assert (NOT_USED in done.stderr) == not_used


def test_a_quirk_that_does_not_exist(hipplan: Run) -> None:
    done = hipplan("sim", "--quirk", "no_such", "--", "true")

    assert done.returncode == 2
    assert "'quirk.no_such=1': there is no quirk no_such" in done.stderr


def test_refuse_kernels_is_for_a_library(hipplan: Run) -> None:
    done = hipplan("sim", "--refuse-kernels", "--", "true")

    assert done.returncode == 2
    assert "--refuse-kernels: it is for --library; the simulator refuses every launch anyway" in done.stderr


def test_to_look_whether_the_simulator_starts_leaves_no_trace(tmp_path: Path, hipplan: Run) -> None:
    ledger, trace = tmp_path / "ledger", tmp_path / "trace"
    done = hipplan("sim", "--trace", trace, "--", "true", env={"HIPSIM_LEDGER_AT_EXIT": str(ledger)})

    assert (done.returncode, done.stderr) == (0, "")
    assert not ledger.exists()
    assert not trace.exists() or trace.read_text() == ""


def test_a_name_that_is_not_utf_8_can_be_locked(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/b\xffd.yaml"
    with open(name, "wb") as file:  # noqa: PTH123
        file.write(b"hipplan: 1\nreservations: {r: {size: 2MiB}}\n")
    lock = tmp_path / "a.lock"
    line = [*map(os.fsencode, command("lock", "--machine", "sim-1")), name]
    made = subprocess.run([*line, "-o", lock], capture_output=True, timeout=600)
    checked = subprocess.run([*line, "--check", lock], capture_output=True, timeout=600)
    value = subprocess.run([*line, "--var", b"a=\xff"], capture_output=True, timeout=600)

    assert (made.returncode, made.stderr) == (0, b"")
    assert "b\N{REPLACEMENT CHARACTER}d.yaml" in lock.read_text("utf-8")
    assert checked.returncode == 0, checked.stderr
    assert value.returncode == 2
    assert b"is not text" in value.stderr


def test_a_variable_of_one_plan_among_several_is_reported_with_its_plan(tmp_path: Path, hipplan: Run) -> None:
    (tmp_path / "a.yaml").write_text("hipplan: 1\nvars: {layer: 1}\n")
    (tmp_path / "b.yaml").write_text("hipplan: 1\nbuffers: {b: {kind: foo, size: 1MiB}}\n")
    (tmp_path / "c\nd.yaml").write_text("hipplan: 1\n")
    done = hipplan("validate", tmp_path, "--var", "layers=1", "--format", "json")
    report = {
        Path(file["file"]).name: [(d["code"], d["span"] and d["span"]["line"]) for d in file["diagnostics"]]
        for file in json.loads(done.stdout)["files"]
    }

    assert done.returncode == 2
    assert report["a.yaml"] == [("HP210", 2)]
    assert report["b.yaml"] == [("HP210", 1), ("HP104", 2)]
    assert "c\\nd.yaml" in done.stdout
    assert f"{tmp_path}/a.yaml:2:1: error[HP210]" in hipplan("validate", tmp_path, "--var", "layers=1").stderr


@pytest.mark.parametrize(
    "line",
    [
        ["validate", "--machine", "sim-2"],
        ["preview", "--machine", "sim-2"],
        ["preview", "--runtime", "sim"],
        ["lock", "--machine", "sim-2"],
        ["apply", "--once", "--runtime", "sim"],
        ["apply", "--once", "--runtime", "sim", "--machine", "mi300x-8"],
    ],
    ids=str,
)
def test_the_simulator_is_no_gpu_for_any_verb(line: list[str], tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\nrequires: {gpu: true}\nbuffers: {b: {kind: device, size: 1MiB}}\n")
    done = hipplan(*line, plan)

    assert done.returncode == 3
    assert f"{plan}:2:17: error[HP313]: the plan requires a real GPU, but this is the simulator" in done.stderr
    assert hipplan("validate", plan, "--machine", "mi300x-8").returncode == 0


@pytest.mark.parametrize("line", [["up", "PLAN", "--name", "a\0b"], ["up", "PLAN", "--locked", "a\0b"], ["down", "\0"]])
def test_an_argument_with_a_nul_is_refused_in_every_verb(line: list[str], hipplan: Run) -> None:
    """A Python program can pass one; no file name and no command line of another process can hold it."""
    done = hipplan(*(ROOT / "plans" / "quickstart.yaml" if part == "PLAN" else part for part in line))

    assert (done.returncode, done.stdout) == (2, "")
    assert f"hipplan {line[0]}: error: no argument can hold a NUL: {line[-1]!r}" in done.stderr
