"""The verbs, their output and their exit codes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from hipplan.kinds.lives import BUFFERS, lies
from tests.cli.conftest import Run
from tests.conftest import PLANS, ROOT

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
TOO_LARGE = "hipplan: 1\nallocations:\n  big: {size: 999GiB}\n"
INVALID = "hipplan: 1\nallocations:\n  a: {devise: gpu.0, size: 1MiB}\n"

every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda path: path.stem)


@every_plan
def test_every_plan_is_valid_and_fits_the_simulator(plan: Path, hipplan: Run) -> None:
    done = hipplan("validate", plan, "--machine", "sim-2")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{plan}: good, and sim-2 can hold it\n"


@every_plan
def test_every_plan_is_previewed(plan: Path, hipplan: Run) -> None:
    done = hipplan("preview", plan, "--machine", "sim-2", "--format", "json")
    shown = json.loads(done.stdout)

    assert done.returncode == 0
    assert shown["format_version"] == 1
    assert shown["steps"]
    assert all(step["call"].startswith("hip") for step in shown["steps"])


@every_plan
def test_every_plan_is_applied_and_torn_down(plan: Path, hipplan: Run) -> None:
    done = hipplan("apply", plan, "--once", "--runtime", "sim", "--format", "json")
    applied, torn_down = map(json.loads, done.stdout.splitlines())

    assert (done.returncode, done.stderr) == (0, "")
    assert applied["event"] == "applied"
    assert applied["checks"]
    on_devices = ("allocation", *(kind for kind in BUFFERS if lies(kind) == "device"))
    memory = [resource for resource in applied["resources"] if resource["kind"] in on_devices]
    assert sum(applied["bytes_by_device"].values()) == sum(block["size"] for block in memory)
    pieces = {check["name"] for check in applied["checks"] if "/" in check["name"]}  # of memory that HIP 7.2 needs cut
    assert torn_down == {
        "format_version": 1,
        "event": "torn down",
        "given_back": sum(resource["kind"] != "tensor" for resource in applied["resources"]) + len(pieces),
        "retries": 0,
        "leaks": [],
        "diagnostics": [],
    }


def test_the_report_reports_each_resource(hipplan: Run) -> None:
    done = hipplan("apply", QUICKSTART, "--once", "--runtime", "sim")

    assert done.returncode == 0
    assert "quickstart: applied on sim-2, HIP 7.2 (libhipsim.so)" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["model[0]"])
    assert row.split()[1:5] == ["mapping", "gpu.0", "6MiB", "6MiB"]
    assert row.split()[5].startswith("0x")
    assert "gpu.0: rw, gpu.1: r" in row
    assert "3 checks" in row
    assert "torn down: 13 of 13 objects released, nothing leaked" in done.stdout


def test_the_report_lists_what_each_selector_matched_under_the_visibility_variables(
    tmp_path: Path, hipplan: Run
) -> None:
    masked = {"HIP_VISIBLE_DEVICES": "1"}
    (one,) = json.loads(hipplan("machine", "--runtime", "sim", "--format", "json", env=masked).stdout)["machine"][
        "devices"
    ]
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"hipplan: 1\ndevices: {{second: {{uuid: {one['uuid']}}}}}\nbuffers: {{b: {{kind: device, size: 1}}}}\n"
    )
    whole = hipplan("apply", plan, "--once", "--runtime", "sim")
    part = hipplan("apply", plan, "--once", "--runtime", "sim", env=masked)
    report = json.loads(
        hipplan("apply", plan, "--once", "--runtime", "sim", "--format", "json", env=masked).stdout.splitlines()[0]
    )

    assert f"\nsecond is device 1 (uuid {one['uuid']})\n" in whole.stdout
    assert f"\nsecond is device 0 (uuid {one['uuid']}); HIP_VISIBLE_DEVICES=1\n" in part.stdout
    assert (report["devices"], report["visibility"]) == (
        {"second": 0},
        masked,
    )  # not CUDA_VISIBLE_DEVICES, which is empty
    assert report["selectors"] == {"second": f"uuid {one['uuid']}"}


def test_each_way_to_choose_a_device_is_reported(tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\ndevices: {a: {ordinal: 1}, gpu: {count: 1}}\n")
    shown = hipplan("preview", plan, "--machine", "sim-2", env={"HIP_VISIBLE_DEVICES": "0"})

    assert "\na is device 1 (ordinal 1), gpu.0 is device 0 (next in order)\n" in shown.stdout


def test_a_preview_for_people_shows_steps_sizes_and_totals(hipplan: Run) -> None:
    done = hipplan("preview", QUICKSTART, "--machine", "sim-2")

    assert done.returncode == 0
    assert "hipMemSetAccess" in done.stdout
    assert "device memory: gpu.0 6MiB, gpu.1 2MiB" in done.stdout


def test_auto_says_that_it_is_the_simulator(hipplan: Run) -> None:
    done = hipplan("apply", QUICKSTART, "--once", env={"HIPPLAN_RUNTIME": "auto"})

    assert done.returncode == 0
    assert "notice: no GPU found, so this is the simulator" in done.stderr


def test_a_plan_that_requires_a_gpu_refuses_the_simulator(tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\nrequires: {gpu: true}\nbuffers:\n  b: {kind: device, size: 1MiB}\n")
    done = hipplan("apply", plan, "--once")

    assert done.returncode == 3
    assert f"{plan}:2:17: error[HP313]" in done.stderr


def test_an_invalid_plan_exits_2_with_place_line_and_hint(tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(INVALID)
    for verb in (["validate"], ["preview", "--machine", "sim-2"], ["apply", "--once", "--runtime", "sim"]):
        done = hipplan(*verb, plan)

        assert done.returncode == 2
        assert f"{plan}:3:7: error[HP101]" in done.stderr
        assert "  a: {devise: gpu.0, size: 1MiB}" in done.stderr
        assert "hint: did you mean 'device'?" in done.stderr


def test_a_plan_larger_than_the_machine_exits_3_before_any_call_changes_anything(tmp_path: Path, hipplan: Run) -> None:
    plan, trace = tmp_path / "plan.yaml", tmp_path / "trace"
    plan.write_text(TOO_LARGE)
    done = hipplan("apply", plan, "--once", "--runtime", "sim", env={"HIPSIM_TRACE": str(trace)})
    called = {json.loads(line)["call"] for line in trace.read_text().splitlines()}

    assert done.returncode == 3
    assert f"{plan}:3:15: error[HP301]: gpu.0 needs 999GiB, 807GiB more than is free" in done.stderr
    assert called & {"hipMemCreate", "hipMalloc", "hipMemAddressReserve", "hipDeviceEnablePeerAccess"} == set()
    assert "hipMemGetInfo" in called


def test_a_failed_apply_exits_4_and_a_failed_undo_exits_5(hipplan: Run) -> None:
    failing = {"HIPSIM_FAIL": "hipMemMap@2=hipErrorOutOfMemory"}
    done = hipplan("apply", QUICKSTART, "--once", "--runtime", "sim", env=failing)

    assert done.returncode == 4
    assert "hipMemMap failed for 'model[0]/1'" in done.stderr
    assert "nothing leaked" in done.stderr

    failing = {"HIPSIM_FAIL": "hipMemRelease@1=hipErrorUnknown"}
    done = hipplan("apply", QUICKSTART, "--once", "--runtime", "sim", env=failing)

    assert done.returncode == 5
    assert "error[HP403]: allocation 'cache' of 2097152 bytes was not released" in done.stderr
    assert "hipErrorUnknown (999)" in done.stderr


def test_validate_reports_all_files_and_the_worst_exit_code_wins(tmp_path: Path, hipplan: Run) -> None:
    large, invalid = tmp_path / "large.yaml", tmp_path / "invalid.yaml"
    large.write_text(TOO_LARGE)
    invalid.write_text(INVALID)
    done = hipplan("validate", large, invalid, QUICKSTART, "--machine", "sim-2", "--format", "json")
    files = json.loads(done.stdout)["files"]

    assert done.returncode == 2
    assert [file["valid"] for file in files] == [True, False, True]
    assert "HP301" in [diagnostic["code"] for diagnostic in files[0]["diagnostics"]]
    assert "HP101" in [diagnostic["code"] for diagnostic in files[1]["diagnostics"]]
    assert hipplan("validate", large, QUICKSTART, "--machine", "sim-2").returncode == 3


def test_a_plan_may_come_from_stdin(hipplan: Run) -> None:
    assert hipplan("validate", "-", stdin=QUICKSTART.read_text()).returncode == 0
    assert hipplan("apply", "-", "--once", "--runtime", "sim", stdin=QUICKSTART.read_text()).returncode == 0
    assert hipplan("validate", "-", stdin=INVALID).returncode == 2


def test_variables_are_set_from_the_command_line(tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\nvars: {n: 2}\nallocations:\n  a: {size: 1MiB, count: $(n)}\n")
    done = hipplan("preview", plan, "--machine", "sim-2", "--var", "n=5", "--format", "json")

    assert len(json.loads(done.stdout)["resources"]) == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ["apply"],
        ["aply"],
        ["apply", "a", "b"],
        ["apply", "--machin", "x", str(QUICKSTART)],
        ["apply", str(QUICKSTART), "--var", "novalue"],
        ["apply", str(QUICKSTART), "--var", "undeclared=1", "--once"],
        ["validate"],
        ["validate", "no-such-file.yaml"],
        ["validate", "a\nb"],
        ["preview", str(ROOT), "--machine", "sim-2"],
        ["preview", str(QUICKSTART), "--format", "xml"],
        [],
        ["--verison"],
        ["machine", "show"],
        ["machine", "list", "sim-2"],
        ["validate", str(QUICKSTART), "--", "--x"],
        ["sim"],
        ["bench", "--repeats", "0"],
    ],
)
def test_wrong_usage_exits_2_with_a_sentence(arguments: list[str], hipplan: Run) -> None:
    done = hipplan(*arguments)

    assert done.returncode == 2
    assert done.stderr or not arguments
    assert "Traceback" not in done.stderr


def test_help_names_every_verb_and_each_verb_has_help(hipplan: Run) -> None:
    from hipplan.cli.main import GROUPS, VERBS

    result = hipplan("--help")
    assert sorted(verb for group in GROUPS.values() for verb in group) == sorted(VERBS)
    assert all(f"\n\n{heading}:\n" in result.stdout for heading in GROUPS)

    assert result.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in result.stdout
        own = hipplan(verb, "--help")
        assert (own.returncode, own.stderr) == (0, "")
        assert own.stdout.startswith(f"usage: hipplan {verb}")


def test_what_was_meant_is_guessed(hipplan: Run) -> None:
    assert "did you mean 'apply'?" in hipplan("aply", QUICKSTART).stderr
    assert "did you mean '--machine'?" in hipplan("validate", "--machin", "sim-2", QUICKSTART).stderr


def test_options_may_stand_anywhere(hipplan: Run) -> None:
    done = hipplan("validate", QUICKSTART, "--machine", "sim-2", QUICKSTART)

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


@pytest.mark.parametrize(
    ("runtime", "code"),
    [("no-such-runtime", 2), ("/no/such/library.so", 3), ("cuda", 3)],
)
def test_a_runtime_that_is_not_there_is_reported_in_a_sentence(runtime: str, code: int, hipplan: Run) -> None:
    done = hipplan("apply", QUICKSTART, "--once", "--runtime", runtime)

    assert done.returncode == code
    assert "error[HP" in done.stderr
    assert "Traceback" not in done.stderr


def test_machine_measures_a_profile_that_can_be_read_back(tmp_path: Path, hipplan: Run) -> None:
    box = tmp_path / "box.yaml"
    done = hipplan("machine", "--runtime", "sim")
    box.write_text(done.stdout)

    assert done.returncode == 0
    assert "built with" in done.stdout
    assert hipplan("validate", QUICKSTART, "--machine", box).returncode == 0


def test_machine_lists_shows_and_compares(hipplan: Run) -> None:
    listed = json.loads(hipplan("machine", "list", "--format", "json").stdout)
    shown: dict[str, Any] = json.loads(hipplan("machine", "show", "sim-2", "--format", "json").stdout)
    compared = hipplan("machine", "--diff", "sim-2", "sim-2-unlinked")

    assert "sim-2" in [machine["name"] for machine in listed["machines"]]
    assert len(shown["machine"]["devices"]) == 2
    assert "links.0.1: xgmi,1 -> none" in compared.stdout


def test_profiles_are_compared_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    from hipplan.cli.main import run

    assert run(["machine", "--diff", "sim-2", "sim-1"]) == 0
    output = capsys.readouterr().out
    assert "true" in output
    assert "True" not in output
    assert "False" not in output


def test_every_exit_code_is_reported() -> None:
    from hipplan.cli import main
    from hipplan.errors import ExitCode

    readme = next(line for line in (ROOT / "README.md").read_text().split("\n\n") if line.startswith("Exit codes: "))
    assert set(map(int, re.findall(r"\b\d+\b", main._EXIT_CODES))) == set(ExitCode)
    assert set(map(int, re.findall(r"\b\d+\b", readme))) == set(ExitCode)


def test_the_reader_may_close_the_pipe(hipplan: Run) -> None:
    import subprocess

    from tests.cli.conftest import command

    line = " ".join(command("machine", "show", "sim-2"))
    done = subprocess.run(f"{line} | head -n 1", shell=True, capture_output=True, text=True, timeout=600)

    assert done.stderr == ""


def test_explain_prints_the_page_of_a_code(hipplan: Run) -> None:
    done = hipplan("explain", "hp301")

    assert done.returncode == 0
    assert done.stdout.startswith("# HP301")
    assert hipplan("explain", "301").stdout == done.stdout
    assert hipplan("explain", "HP999").returncode == 2


def test_schema_is_json_schema(hipplan: Run) -> None:
    for document in ("plan", "machine"):
        assert json.loads(hipplan("schema", document).stdout)["$schema"].startswith("https://json-schema.org/")


def test_sim_runs_a_program_on_the_simulator_and_passes_its_exit_code_on(hipplan: Run) -> None:
    program = "import ctypes, sys; n = ctypes.c_int(); h = ctypes.CDLL('libamdhip64.so.6'); "
    program += "h.hipGetDeviceCount(ctypes.byref(n)); v = ctypes.c_int(); h.hipRuntimeGetVersion(ctypes.byref(v)); "
    program += "print(n.value, v.value // 100000); sys.exit(7)"
    done = hipplan("sim", "--machine", "mi300x-8", "--hip-version", "6.3", "--", sys.executable, "-c", program)

    assert (done.returncode, done.stdout) == (7, "8 603\n")


def test_a_program_that_cannot_start_in_sim_exits_3(hipplan: Run) -> None:
    assert hipplan("sim", "--", "/no/such/program").returncode == 3


def test_hipplan_itself_runs_in_sim_as_on_rocm(hipplan: Run) -> None:
    inner = [sys.executable, "-m", "hipplan", "apply", QUICKSTART, "--once", "--runtime", "amd"]
    done = hipplan("sim", "--", *inner)

    assert done.returncode == 0
    assert "(libamdhip64.so" in done.stdout


def test_an_allocation_can_be_on_a_numa_node_of_the_host(tmp_path: Path, hipplan: Run) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "hipplan: 1\nallocations: {a: {device: host, numa_node: 0, size: 4KiB}}\n"
        "reservations: {r: {access: {gpu.0: rw, host: rw}, mappings: [{allocation: a}]}}\n"
    )
    inner = [sys.executable, "-m", "hipplan", "apply", plan, "--once", "--runtime", "amd", "--format", "json"]
    old = hipplan("sim", "--hip-version", "7.2", "--", *inner)
    new = hipplan("sim", "--hip-version", "7.15", "--", *inner)

    assert old.returncode == 3
    assert "error[HP309]: allocations on a NUMA node need HIP 7.15 (ROCm 10.0)" in old.stderr
    assert (new.returncode, new.stderr) == (0, "")
    checks = json.loads(new.stdout.splitlines()[0])["checks"]
    assert {"name": "a", "what": "location", "current": "NUMA node 0"} in checks
