"""Unusual environments and names: an error message, the right exit code, and no garbled output."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hipplan.cli import main
from tests.cli.conftest import Run, command
from tests.conftest import ROOT
from tests.started import Started

PLAN = "hipplan: 1\nname: pl\u00e4n\nbuffers: {b: {kind: device, size: 1}}\n"
WRONG = "hipplan: 1\nbuffers: {\u00e4: {kind: device, size: 1}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.yaml").write_text(PLAN, encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(WRONG, encoding="utf-8")
    return tmp_path


TERMINALS: list[dict[str, str]] = [
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONUTF8": "0"},
    {"COLUMNS": "x"},
    {"TERM": "?", "COLUMNS": "-5", "LINES": "0"},
    {"NO_COLOR": "1", "FORCE_COLOR": "1"},
]


@pytest.mark.parametrize("variables", TERMINALS, ids=str)
def test_a_terminal_that_cannot_show_a_name(variables: dict[str, str], folder: Path, hipplan: Run) -> None:
    shown = hipplan("preview", folder / "good.yaml", "--machine", "sim-2", env=variables)
    result = hipplan("validate", folder / "wrong.yaml", env=variables)

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(("pl\u00e4n on sim-2", "pl\\xe4n on sim-2", "\x1b"))
    assert result.returncode == 2
    assert "error[HP106]" in result.stderr


def test_the_text_of_a_plan_draws_nothing_on_the_terminal_and_forges_no_line(folder: Path, hipplan: Run) -> None:
    name, kind = r'"\e[31mX\n  FAKE: all is well"', r'"\e[31mdev\nFAKE: good"'
    (folder / "good.yaml").write_text(f"hipplan: 1\nname: {name}\nbuffers: {{b: {{kind: device, size: 1}}}}\n")
    (folder / "wrong.yaml").write_text(f"hipplan: 1\nbuffers: {{b: {{kind: {kind}, size: 1}}}}\n")
    (folder / "odd\x1b\nFAKE.yaml").write_text("hipplan: 1\n")
    good, lock = folder / "good.yaml", folder / "a.lock"
    for line in (
        ["lock", good, "--runtime", "sim", "-o", lock],
        ["lock", good, "--runtime", "sim", "--check", lock],
        ["preview", good, "--machine", "sim-2"],
        ["preview", good, "--machine", "sim-2", "--from", folder / "wrong.yaml"],
        ["preview", good, "--machine", "sim-2", "--from", good],
        ["apply", good, "--once", "--runtime", "sim"],
        ["validate", folder],
        ["validate", folder, "--format", "github"],
        ["fmt", "--check", folder],
    ):
        done = hipplan(*line)
        output = done.stdout + done.stderr
        assert "\x1b" not in output, line
        assert not any(printed.strip().startswith("FAKE") for printed in output.splitlines()), line


def test_a_failure_is_reported_to_programs_too(folder: Path, hipplan: Run) -> None:
    (folder / "large.yaml").write_text("hipplan: 1\nbuffers: {b: {kind: device, size: 999GiB}}\n")
    (folder / "late.yaml").write_text("hipplan: 1\nbuffers: {b: {kind: device, size: 1GiB}}\n")
    wrong, fail = folder / "wrong.yaml", {"HIPSIM_FAIL": "hipMalloc@1=hipErrorOutOfMemory"}
    sim = ["--once", "--runtime", "sim"]
    cases: list[tuple[list[object], int, str]] = [
        (["preview", wrong, "--machine", "sim-2"], 2, "HP106"),
        (["preview", folder / "large.yaml", "--machine", "sim-2"], 3, "HP301"),
        (["apply", wrong, *sim], 2, "HP106"),
        (["apply", folder / "large.yaml", *sim], 3, "HP301"),
        (["apply", folder / "late.yaml", *sim], 4, "HP401"),
        (["verify", "1"], 4, "HP412"),
        (["replay", wrong], 2, "HP014"),
        (["machine", "show", "nope"], 2, "HP110"),
        (["machine", "--runtime", "nope"], 2, "HP407"),
        (["validate", folder / "good.yaml", "--machine", "nope"], 2, "HP110"),
    ]
    for line, code, first in cases:
        done = hipplan(*line, "--format", "json", env=fail)
        (report,) = map(json.loads, done.stdout.splitlines())
        assert (done.returncode, report["event"], report["exit_code"]) == (code, "failed", code), line
        assert report["format_version"] == 1
        assert report["diagnostics"][0]["code"] == first, line
        assert f"error[{first}]" in done.stderr


def test_a_document_is_utf_8_whatever_the_terminal_speaks(folder: Path, hipplan: Run) -> None:
    done = hipplan("fmt", folder / "good.yaml", env={"PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stdout) == (0, PLAN)


def test_a_file_whose_name_is_not_utf_8(folder: Path, hipplan: Run) -> None:
    name = folder / os.fsdecode(b"b\xffd.yaml")
    name.write_bytes(WRONG.encode())
    for format in ("text", "json", "github", "sarif"):  # noqa: A001
        done = hipplan("validate", "--format", format, name)
        assert done.returncode == 2, done.stderr
        if format == "sarif":
            (result,) = json.loads(done.stdout)["runs"][0]["results"]
            assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/b%FFd.yaml")


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"HIPPLAN_RUNTIME": "simm"}, 2),
        ({"HIPPLAN_RUNTIME": "\x01/\x02"}, 3),
        ({"HIPPLAN_RUNTIME": "/etc/passwd"}, 3),
        ({"HIPPLAN_RUNTIME": "/"}, 3),
        ({"HIPPLAN_RUNTIME": ""}, 0),
        ({"HIPPLAN_RUNTIME": "sim", "HIPPLAN_IDLE_NOTICE": "soon"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPPLAN_IDLE_NOTICE": "nan"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPPLAN_IDLE_NOTICE": "-1"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPPLAN_IDLE_NOTICE": ""}, 0),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_PROFILE": "nonsense"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_FAIL": "nonsense"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_TRACE": "/no/such/trace"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_LIBRARY": "/no/such/library"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_LIBRARY": "/etc/passwd"}, 2),
        ({"HIPPLAN_RUNTIME": "sim", "HIPSIM_LOG": "/no/such/log"}, 0),
        ({"HIPPLAN_RUNTIME": "sim", "HIP_VISIBLE_DEVICES": "nonsense"}, 3),
        ({"HIPPLAN_RUNTIME": "sim", "HIP_VISIBLE_DEVICES": "-1"}, 3),
        ({"HIPPLAN_RUNTIME": "sim", "ROCR_VISIBLE_DEVICES": "7"}, 3),
        ({"HIPPLAN_RUNTIME": "amd", "ROCM_PATH": "/\udcff"}, 3),
    ],
    ids=str,
)
def test_hostile_variables_of_the_environment(variables: dict[str, str], code: int, folder: Path, hipplan: Run) -> None:
    done = hipplan("preview", folder / "good.yaml", env=variables)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert code == 0 or "error[HP" in done.stderr
    wrong = next(reversed(variables))
    assert not wrong.startswith(("HIPPLAN_", "HIPSIM_")) or not variables[wrong] or wrong in done.stderr
    assert "error[HP415]" not in done.stderr or "set by: HIPPLAN_RUNTIME" not in done.stderr


def test_a_simulator_without_a_device_can_be_asked_nothing(folder: Path, hipplan: Run) -> None:
    verbs = [("machine",), ("apply", folder / "good.yaml", "--once"), ("bench",)]
    for arguments in verbs:
        done = hipplan(*arguments, "--runtime", "sim", env={"HIP_VISIBLE_DEVICES": "-1"})

        assert done.returncode == 3, (arguments, done.stderr)
        assert "error[HP407]: the simulator shows no device" in done.stderr
        assert "HIP_VISIBLE_DEVICES" in done.stderr


PINNED = '{"hipplan": 1, "buffers": {"b": {"kind": "pinned", "size": 4096}}}'


def with_output(started: Started, output: int, folder: Path, *arguments: object) -> tuple[int, str]:
    """Exit code and standard error of a run of PINNED, whose standard output is this descriptor."""
    plan, err = folder / "plan.json", folder / "err"
    plan.write_text(PINNED)
    with plan.open() as read, err.open("w") as reported:
        given = [str(argument) for argument in arguments]
        code = started.run_on(given, (read.fileno(), output, reported.fileno()), dict(os.environ)).code
    return code, err.read_text()


def test_a_full_disk_is_no_bug_and_does_not_keep_memory_from_being_saved(folder: Path, started: Started) -> None:
    saved = folder / "saved.npy"
    save = ("apply", "-", "--once", "--runtime", "sim", "--save", f"b={saved}")
    helps = ("help",), ("help", "apply"), ("apply", "--help")
    for line in (*helps, ("machine", "list"), ("preview", "-", "--machine", "sim-2"), save):
        with Path("/dev/full").open("w") as full:
            code, reported = with_output(started, full.fileno(), folder, *line)

        assert code == 2, reported
        assert reported.splitlines()[-1].startswith("hipplan: error: the output cannot be written: No space left")
        assert "Traceback" not in reported
    assert saved.stat().st_size >= 4096


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_has_gone_is_no_failure(form: str, folder: Path, started: Started) -> None:
    """As `| head` does; what was asked for is done all the same."""
    saved = folder / "saved"
    lines = [
        ("preview", folder / "good.yaml", "--machine", "sim-2", "--format", form),
        ("bench", "--runtime", "sim", "--size", "4096", "--repeats", "1", "--format", form),
        ("apply", "-", "--once", "--runtime", "sim", "--format", form, "--save", f"b={saved}"),
    ]
    for line in lines:
        reading, writing = os.pipe()
        os.close(reading)
        ended = with_output(started, writing, folder, *line)
        os.close(writing)

        assert ended == (0, ""), line
    assert saved.stat().st_size == 4096


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "junit"])
def test_a_reader_that_has_gone_does_not_make_a_wrong_plan_good(form: str, folder: Path, started: Started) -> None:
    """The output of many is longer than what is buffered: it fails in the middle."""
    for number in range(60):
        (folder / f"{number}.yaml").write_text("hipplan: 1\nbuffers: {a: {kind: devise, size: 1MiB}}\n")
    reading, writing = os.pipe()
    os.close(reading)
    ended = with_output(started, writing, folder, "validate", folder, "--format", form)
    os.close(writing)

    assert (ended[0], "Traceback" in ended[1]) == (2, False)


def test_a_layout_is_not_held_for_a_reader_that_has_gone(folder: Path, started: Started) -> None:
    reading, writing = os.pipe()
    os.close(reading)

    assert with_output(started, writing, folder, "apply", "-", "--runtime", "sim") == (0, "")
    os.close(writing)


def test_a_layout_is_held_until_the_reader_of_its_report_goes(folder: Path) -> None:
    line = command("apply", str(folder / "good.yaml"), "--runtime", "sim")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "applied" in process.stdout.readline()
        assert process.stderr.readline().startswith("holding")
        process.stdout.close()
        assert process.wait() == 0


@pytest.mark.parametrize("name", [b"A\xffB", b"[/red] [bold]:smile:", b"a: [b] # c"], ids=repr)
def test_a_device_s_name_is_only_a_name(name: bytes, folder: Path, hipplan: Run) -> None:
    """Whatever bytes a driver gives it: not text, markup or YAML."""
    profile = b"device.0.vmm=1\ndevice.0.memory=1073741824\ndevice.0.name=" + name
    shown = name.decode(errors="replace")
    verbs = [("machine",), ("bench", "--size", "4096", "--repeats", "1"), ("apply", folder / "good.yaml", "--once")]
    for arguments in verbs:
        done = hipplan(*arguments, "--runtime", "sim", env={"HIPSIM_PROFILE": os.fsdecode(profile)})

        assert done.returncode == 0, done.stderr
        if arguments[0] == "machine":
            assert yaml.safe_load(done.stdout)["devices"][0]["name"] == shown
        elif arguments[0] == "bench":
            assert f"1 x {shown}; copies" in done.stdout


@pytest.mark.skipif("HIPPLAN_SANITIZER" in os.environ, reason="sanitizers need files and addresses of their own")
@pytest.mark.parametrize(
    ("limit", "option", "plan"),
    [
        ("RLIMIT_NOFILE", "-n", "allocations: {a: {size: 4KiB, count: 20, shareable: posix_fd}}"),
        ("RLIMIT_AS", "-v", "buffers: {b: {kind: managed, size: 40GiB}}"),
        ("RLIMIT_FSIZE", "-f", "buffers: {b: {kind: device, size: 1GiB}}"),
    ],
)
def test_a_limit_of_the_process_is_no_lack_of_device_memory(limit: str, option: str, plan: str, tmp_path: Path) -> None:
    """The process lowers its own limit when everything is loaded, so that only the driver meets it."""
    (tmp_path / "plan.yaml").write_text(f"hipplan: 1\n{plan}\n")
    code = """
import os, resource, sys
import hipplan
from hipplan.layout.prepare import prepare
from hipplan.machines.runtimes import choose
from hipplan.layout.run import run
program = prepare(hipplan.load(sys.argv[1]), choose("sim"), None)
which = getattr(resource, sys.argv[2])
fewest = {"RLIMIT_NOFILE": 9, "RLIMIT_AS": 16 << 30, "RLIMIT_FSIZE": 1 << 20}[sys.argv[2]]
resource.setrlimit(which, (fewest, resource.getrlimit(which)[1]))
try:
    run(program, choose("sim").runtime)
except hipplan.ApplyError as error:
    print(error.diagnostics[0].hint)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "plan.yaml", limit], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert f"raise `ulimit {option}`" in done.stdout
    assert "device" not in done.stdout


def test_a_range_that_cannot_be_reserved_is_no_lack_of_device_memory(hipplan: Run) -> None:
    plan = '{"hipplan": 1, "reservations": {"r": {"size": "4MiB"}}}'
    failing = {"HIPSIM_FAIL": "hipMemAddressReserve@1=hipErrorOutOfMemory"}
    done = hipplan("apply", "-", "--once", "--runtime", "sim", stdin=plan, env=failing)

    assert done.returncode == 4
    assert "hint: this is address space, not memory: reserve less\n" in done.stderr


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        (MemoryError(), "run out of memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "run out of memory"),
        (
            OSError(errno.EMFILE, "Too many open files", "render.py"),
            "run out of file descriptors: raise `ulimit -n`",
        ),
        (ImportError("_core.so: failed to map segment from shared object"), "run out of memory"),
        (
            ImportError("_core.so: cannot open shared object file: Too many open files"),
            "run out of file descriptors",
        ),
    ],
)
def test_what_the_process_lacks_is_no_bug(
    lacks: Exception, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: list[str]) -> int:
        raise lacks

    monkeypatch.setattr(main, "_run", run)

    assert main.run(["preview", "plan.yaml"]) == 3
    assert says in capsys.readouterr().err


@pytest.mark.skipif("HIPPLAN_SANITIZER" in os.environ, reason="sanitizers need files and addresses of their own")
def test_no_folder_for_temporary_files_is_no_bug(folder: Path) -> None:
    """Nothing can be written to a file: Python tries TMPDIR, /tmp and others, and takes none."""
    (folder / "measured.py").write_text("def work(layout): pass\n")
    (folder / "e.experiment.yaml").write_text("hipplan_experiment: 1\nplan: good.yaml\ninside: measured:work\n")
    line = command("experiment", "run", "e.experiment.yaml", "--runtime", "sim")
    limited = ["bash", "-c", 'ulimit -f 0; "$@"', "bash", *line]
    done = subprocess.run(limited, capture_output=True, text=True, cwd=folder)

    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert done.stderr.endswith("no folder for temporary files can be written to: set TMPDIR, or free some space\n")


@pytest.mark.parametrize("verb", ["validate", "fmt", "preview", "apply", "lock"])
def test_standard_input_that_is_closed_is_reported(verb: str, started: Started, tmp_path: Path) -> None:
    with (tmp_path / "err").open("w+") as err, Path(os.devnull).open("w") as out:
        ended = started.run_on([verb, "-"], (None, out.fileno(), err.fileno()), dict(os.environ))
        err.seek(0)

        assert ended.code == 2
        assert "error[HP001]: standard input is closed" in err.read()


def test_an_object_that_could_not_be_restored_has_the_exit_code_of_a_leak(hipplan: Run) -> None:
    """Everything is freed, but the thread's current device has changed."""
    message = "nothing leaked\n  not restored: the thread's current device could not be set back to 0"
    outcomes = set()
    for nth in range(3, 7):  # the calls before that measure the machine
        twice = f"hipSetDevice@{nth}=hipErrorUnknown; hipSetDevice@{nth + 1}=hipErrorUnknown"
        faults = {"HIPSIM_FAIL": f"{twice}; hipMemMap@1=hipErrorUnknown"}
        done = hipplan("apply", ROOT / "plans" / "quickstart.yaml", "--once", "--runtime", "sim", env=faults)
        outcomes.add((message in done.stderr, done.returncode))
    assert outcomes == {(True, 5), (False, 4)}
