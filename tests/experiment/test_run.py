"""Running an experiment: one line for each repetition, whatever it does and whenever the run is killed."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from hipplan.cli.main import run
from hipplan.errors import PlanError
from hipplan.experiment import process, results
from hipplan.holders.names import known
from hipplan.machines.provenance import anonymous
from tests.cli.conftest import command
from tests.conftest import ROOT
from tests.experiment.conftest import Write, experiment, lines, synthetic

CODE = """
import os, signal, subprocess, sys, time

def work(layout):
    size = layout["a"].size
    print("size", size, "bytes")
    if size == 8 << 20:
        raise ValueError("too large")
    if size == 16 << 20:
        os.kill(os.getpid(), signal.SIGUSR1)
    return {"double": 2 * size}

def slow(layout):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    open("pids", "a").write(f"{os.getpid()} {child.pid} ")
    if layout["a"].size == 4 << 20:
        time.sleep(1000)
"""


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or only its parent has not asked for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pids: list[int]) -> None:
    while not all(map(is_gone, pids)):
        time.sleep(0.01)


def repetitions(path: Path) -> Counter[tuple[str, int]]:
    return Counter((json.dumps(line["cell"]), line["repetition"]) for line in lines(path))


def test_each_repetition_is_a_line_and_a_failure_is_one(write: Write) -> None:
    path = write(
        "vary: {size: [4MiB, 8MiB, 16MiB]}\nrepeat: 1\norder: written\nseed: 3\ninside: measured:work\n"
        "metrics: {size: {match: 'size (.*) bytes', unit: B}, double: {}}\n",
        CODE,
    )

    assert experiment("run", path) == 4
    good, raised, killed = lines(path)
    assert good["metrics"] == {"size": 4 << 20, "double": 8 << 20} and good["units"] == {"size": "B"}
    assert (good["result"], good["exit_code"], good["error"]) == ("ok", 0, None)
    assert good["experiment"]["seed"] == 3 and good["experiment"]["position"] == 0
    assert good["plan"]["verified"] and good["plan"]["checks"] > 0 and len(good["plan"]["digest"]) == 64
    assert good["plan"]["digest"] != raised["plan"]["digest"]
    assert (raised["result"], raised["exit_code"]) == ("failed", 1)
    assert raised["error"]["code"] == "HP462" and raised["error"]["why"] == "ValueError: too large"
    assert "Traceback" in raised["stderr"] and raised["metrics"] == {}
    assert (killed["exit_code"], killed["error"]["why"]) == (128 + signal.SIGUSR1, "it was ended by SIGUSR1")


def test_json_has_the_lines_of_the_results(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("repeat: 2\ninside: measured:work\n", CODE)

    assert experiment("run", path, "--format", "json") == 0
    assert capsys.readouterr().out == path.with_name("e.results.jsonl").read_text()
    assert all((line["event"], line["format_version"]) == ("repetition", 1) for line in lines(path))


def test_each_line_says_where_it_comes_from(write: Write) -> None:
    path = write(
        "vary: {size: [4MiB, 8MiB]}\nenv: {HSA_XNACK: 1}\nrepeat: 1\norder: written\ninside: measured:work\n", CODE
    )

    assert experiment("run", path) == 4
    for line in lines(path):
        provenance = line["provenance"]
        assert provenance["runtime"]["kind"] == "simulator" and provenance["runtime"]["build_id"]
        assert provenance["environment"]["HSA_XNACK"] == "1"
        assert provenance["host"] == platform.node()
        assert provenance["gpus"][0]["memory_in_use"] == 0


def test_anonymous_results_name_no_path_and_no_host(write: Write) -> None:
    path = write("vary: {size: [4MiB, 8MiB]}\nrepeat: 1\ninside: measured:work\n", CODE)

    assert experiment("run", path, "--anonymous") == 4
    text = path.with_name("e.results.jsonl").read_text()
    assert str(path.parent) not in text and str(ROOT) not in text and f'"{platform.node()}"' not in text


def test_anonymous_results_name_nobody_wherever_they_could(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user is alice: her name and home are in variables, in a command that is gone, and in its error."""
    monkeypatch.setenv("USER", "alice")
    anonymous._names.cache_clear()
    for name, value in (("HIP_OWNER", "alice"), ("NCCL_CONF", "/home/alice/x"), ("GPU_NOTE", "of alice.")):
        monkeypatch.setenv(name, value)
    path = write("name: runs of alice\nrepeat: 1\nrun: [./alice.sh]\n")
    script = path.with_name("alice.sh")
    script.write_text(f"#!/bin/sh\necho /home/alice >&2; exec rm {script}\n")
    script.chmod(0o755)

    assert experiment("run", path, "--repeat", 2, "--anonymous") == 4
    text = path.with_name("e.results.jsonl").read_text()
    assert "alice" not in text and f'"{platform.node()}"' not in text and str(path.parent) not in text
    assert "there is no command '.(anonymous).sh'" in text and '"HIP_OWNER": "(anonymous)"' in text

    path = write("env: {DATA: [/home/alice/x]}\nrepeat: 1\nrun: ['true']\n")
    assert experiment("run", path, "--anonymous", "-o", "other.jsonl") == 2
    assert f"{path}:3:13: error[HP460]: 'DATA' is /home/alice/x: that names" in capsys.readouterr().err
    anonymous._names.cache_clear()


def test_a_plan_that_the_machine_cannot_hold_is_a_failed_repetition(write: Write) -> None:
    path = write("vary: {size: [900GiB]}\nrepeat: 1\ninside: measured:work\n", CODE)

    assert experiment("run", path) == 4
    assert [(line["error"]["code"], line["exit_code"]) for line in lines(path)] == [("HP301", 3)]


def test_booleans_are_shown_as_the_file_has_them(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("env: {FOO: [1, true]}\nrepeat: 1\norder: written\ninside: measured:f\n", "def f(_): return {'x': 1}")

    assert experiment("run", path) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("1/2 FOO=1 #1: x 1;") and second == "2/2 FOO=true #1: x 1"
    assert experiment("report", path, "--format", "csv") == 0
    assert [row.partition(",")[0] for row in capsys.readouterr().out.splitlines()] == ["FOO", "true", "1"]


def test_quiet_says_what_has_failed_and_no_more(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("vary: {size: [4MiB, 8MiB]}\nrepeat: 1\norder: written\ninside: measured:work\n", CODE)

    assert experiment("run", path, "-q") == 4
    failed = "2/2 size=8MiB #1: failed: the repetition raised an exception: ValueError: too large\n"
    assert capsys.readouterr() == ("", failed)
    assert experiment("run", path, "--only", "size=8MiB", "-o", "other.jsonl") == 4
    assert capsys.readouterr() == (f"{failed.replace('2/2', '1/1')}other.jsonl: 1 repetition, 1 failed\n", "")
    assert experiment("resume", path, "--only", "size=8MiB", "-o", "other.jsonl") == 0
    assert capsys.readouterr().err == "notice: other.jsonl has 1 repetition already\n"


def test_a_late_repetition_is_killed_with_all_that_it_started(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps to the end of its time as soon as it has started its child, however slow this machine is."""
    pids = Path("pids")

    def clock() -> float:
        return time.monotonic() + 1000 * (pids.exists() and pids.read_text().endswith(" "))

    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=clock))
    path = write("repeat: 1\ntimeout: 900\ninside: measured:slow\n", CODE)

    assert run(["experiment", "run", str(path)]) == 4
    assert lines(path)[0]["error"]["why"] == "it took longer than 900 s"
    assert len(pids.read_text().split()) == 2
    wait_until_gone([int(pid) for pid in pids.read_text().split()])


def test_a_repetition_that_floods_its_output_is_killed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WRITTEN_MAX", 1 << 20)
    path = write("repeat: 1\ninside: measured:work\n", "def work(layout):\n    while True: print('x' * 65536)\n")

    assert run(["experiment", "run", str(path)]) == 4
    assert lines(path)[0]["error"]["why"] == "it wrote more than 1 MiB"


def test_a_pattern_that_takes_for_ever_ends_with_its_time(write: Write) -> None:
    code = "def work(layout): print('x' * 60)\n"
    path = write("repeat: 1\ntimeout: 3\ninside: measured:work\nmetrics: {a: '((?:x+x+)+)y'}\n", code)

    assert experiment("run", path) == 4
    assert lines(path)[0]["error"]["why"] == "it took longer than 3 s"


def test_what_c_code_prints_is_read(write: Write) -> None:
    code = "import ctypes\ndef work(layout): ctypes.CDLL(None).printf(b'rate %d\\n', 42)\n"
    path = write("repeat: 1\ninside: measured:work\nmetrics: {rate: 'rate (.*)'}\n", code)

    assert experiment("run", path) == 0
    assert lines(path)[0]["metrics"] == {"rate": 42}


def test_the_callers_variables_change_no_plan(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPPLAN_VAR_size", "64MiB")
    script = "echo size $HIPPLAN_SIZE_a variable $HIPPLAN_VAR_size."
    text = f"repeat: 1\nrun: [sh, -c, '{script}']\nmetrics: {{size: 'size (\\d+) variable [.]'}}\n"
    path = write(text)

    assert experiment("run", path) == 0, lines(path)
    assert lines(path)[0]["metrics"] == {"size": 4 << 20}


def test_a_lock_holds_each_cell(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("vary: {size: [4MiB, 8MiB]}\nrepeat: 1\norder: written\nlocked: plan.lock\ninside: measured:work\n")
    path.with_name("measured.py").write_text("def work(layout): return {'at': layout['a'].address}\n")
    assert run(["lock", "plan.yaml", "--runtime", "sim", "-o", "plan.lock"]) == 0

    assert experiment("run", path) == 4
    good, other = lines(path)
    digest = hashlib.sha256(Path("plan.lock").read_bytes()).hexdigest()
    assert (good["result"], good["plan"]["lock"]) == ("ok", digest)
    assert hex(int(good["metrics"]["at"])) in Path("plan.lock").read_text()
    assert other["error"]["code"] == "HP320"


def test_what_a_repetition_leaves_running_is_killed(write: Write) -> None:
    path = write("vars: {size: 8MiB}\nrepeat: 1\ninside: measured:slow\n", CODE)

    assert experiment("run", path) == 0
    wait_until_gone([int(pid) for pid in Path("pids").read_text().split()])


def test_what_leaves_the_process_group_is_killed_too(write: Write) -> None:
    leave = f"{sys.executable} -c 'import os, time; print(os.getpid(), end=\" \", flush=True); time.sleep(1000)'"
    script = f"setsid {leave} >> pids & while ! grep -q ' ' pids 2>/dev/null; do :; done"
    path = write("repeat: 1\nrun: [sh, script]\n")
    Path("script").write_text(script)

    assert experiment("run", path) == 0, lines(path)
    wait_until_gone([int(Path("pids").read_text())])


@pytest.mark.parametrize("leave", ["os._exit(0)", "ctypes.CDLL(None).exit(0)"])
def test_a_repetition_that_ends_early_has_failed(write: Write, leave: str) -> None:
    path = write("repeat: 1\ninside: measured:work\n", f"import ctypes, os\ndef work(layout): {leave}\n")

    assert experiment("run", path) == 4
    assert lines(path)[0]["error"]["why"] == "it ended with exit code 0, before its measurement was done"


def test_output_of_warmups_does_not_count(write: Write) -> None:
    code = "def work(layout, calls=[]):\n    calls.append(1)\n    if len(calls) < 3: print('x 1')\n"
    path = write("repeat: 1\nwarmup: 2\ninside: measured:work\nmetrics: {x: 'x (.)'}\n", code)

    assert experiment("run", path) == 4
    assert lines(path)[0]["error"]["summary"] == "there is no metric 'x'"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def work(layout): return {'x': float('nan')}", "'x' is not a finite number: nan"),
        ("def work(layout): return 3", "the function must return a mapping of names to numbers, or nothing"),
        ('def work(layout): print(\'{"x": "1"}\')', "'x' must be a number, not text: 1"),
    ],
)
def test_a_metric_must_be_a_number(write: Write, code: str, said: str) -> None:
    path = write("repeat: 1\ninside: measured:work\nmetrics: {x: {}}\n", code)

    assert experiment("run", path) == 4
    assert lines(path)[0]["error"]["summary"] == said


@pytest.mark.parametrize(
    "what", ["inside: measured:wrk", "inside: nomodule:work", "run: [./no]", "run: [no-such-command]"]
)
def test_what_is_missing_is_said_before_the_first_repetition(
    write: Write, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(f"{what}\n", "def work(layout): pass\n")

    assert experiment("run", path) == 2
    assert experiment("run", path, "--dry-run") == 2
    assert capsys.readouterr().err.count(f"{path}:3:") == 2
    assert run(["validate", str(path)]) == 0  # it may be on another machine
    assert not path.with_name("e.results.jsonl").exists()


def test_a_command_attaches_and_has_the_places_of_objects(write: Write) -> None:
    code = (
        "import hipplan, json, os\n"
        "with hipplan.attach() as layout:\n"
        "    layout.fill('a', 3)\n"
        "    print(json.dumps({'right': int(hex(layout['a'].address) == os.environ['HIPPLAN_ADDRESS_a']),\n"
        "        'size': int(os.environ['HIPPLAN_SIZE_a']), 'wanted': int(os.environ['HIPPLAN_VAR_size'])}))\n"
    )
    path = write(f"vars: {{size: {4 << 20}}}\nrepeat: 1\nrun: [python3, measured.py]\n", code)
    script = path.with_name("python3")
    script.write_text(f'#!/bin/sh\nexec {command()[0]} "$@"\n')
    script.chmod(0o755)
    path.write_text(path.read_text().replace("python3", "./python3", 1))

    assert experiment("run", path) == 0, lines(path)
    (line,) = lines(path)
    assert line["metrics"] == {"right": 1, "size": 4 << 20, "wanted": 4 << 20}
    assert line["plan"]["verified"] and len(line["plan"]["program"]) == 64
    assert not [name for name, _, _ in known() if name.startswith("experiment-")]


def test_a_command_that_fails_is_a_failed_repetition(write: Write) -> None:
    path = write("repeat: 1\nrun: [sh, -c, 'echo wrong >&2; exit 7']\n")

    assert experiment("run", path) == 4
    (line,) = lines(path)
    assert (line["exit_code"], line["error"]["summary"]) == (7, "the command ended with exit code 7")
    assert line["stderr"].endswith("wrong\n")


def test_killed_at_any_line_it_resumes_and_no_repetition_has_two_lines(write: Write) -> None:
    path = write("vary: {size: [4MiB, 12MiB]}\nrepeat: 2\nwarmup: 0\ninside: measured:work\n", CODE)
    file = path.with_name("e.results.jsonl")
    wanted = random.randrange(1, 4)
    run = subprocess.Popen(command("experiment", "run", path), stdout=subprocess.DEVNULL)
    while not file.exists() or file.read_bytes().count(b"\n") < wanted:
        assert run.poll() is None
        time.sleep(0.01)
    run.kill()
    run.wait()
    before = file.read_bytes()
    file.write_bytes(before + before[: random.randrange(1, before.index(b"\n"))])  # torn, as by a kill within the write

    assert experiment("resume", path) == 0
    assert file.read_bytes().startswith(before)
    assert set(repetitions(path).values()) == {1} and len(repetitions(path)) == 4
    assert len({line["experiment"]["seed"] for line in lines(path)}) == 1
    assert sorted(line["experiment"]["position"] for line in lines(path)) == [0, 1, 2, 3]

    after = file.read_bytes()
    assert experiment("resume", path) == 0
    assert file.read_bytes() == after


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_repetition_ends_with_the_run(write: Write, number: signal.Signals) -> None:
    path = write("repeat: 1\ninside: measured:slow\n", CODE)
    run = subprocess.Popen(
        command("experiment", "run", path, "-o", "e.results.jsonl"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    pids = Path("pids")
    while not pids.exists() or len(pids.read_text().split()) < 2 or not pids.read_text().endswith(" "):
        assert run.poll() is None
        time.sleep(0.01)
    run.send_signal(number)

    _, said = run.communicate()
    assert run.returncode in (-number, 128 + number)
    kept = "notice: e.results.jsonl has 0 repetitions; `hipplan experiment resume` with the same file and options"
    assert said == ("" if number == signal.SIGKILL else f"{kept} runs the rest\n")
    wait_until_gone([int(pid) for pid in pids.read_text().split()])
    assert path.with_name("e.results.jsonl").read_bytes() == b""


def test_a_torn_line_is_dropped_wherever_it_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with results.opened(str(path), resume=False) as file:
        for number in range(3):
            file.append(synthetic(number))
    whole = path.read_bytes()
    for end in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:end])
        with results.opened(str(path), resume=True) as file:
            kept = whole[:end].count(b"\n")
            assert [line["cell"]["vary"]["a"] for line in file.lines] == list(range(kept))
            file.append(synthetic(9))
        assert [line["cell"]["vary"]["a"] for line in results.read(str(path))] == [*range(kept), 9]


def test_a_line_is_not_there_if_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.jsonl"
    with results.opened(str(path), resume=False) as file:
        file.append(synthetic(0))
        before = path.read_bytes()
        write = os.write
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:10]))
        with pytest.raises(PlanError, match="HP413"):
            file.append(synthetic(1))

        assert path.read_bytes() == before


def test_results_are_never_written_over_and_by_one_run_at_a_time(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("repeat: 1\ninside: measured:work\n", CODE)
    file = path.with_name("e.results.jsonl")
    with results.opened(str(file), resume=False) as opened:
        assert experiment("run", path) == 2
        assert "another run of an experiment is writing to it" in capsys.readouterr().err
        opened.append(synthetic(0))

    assert experiment("run", path) == 2
    assert "HP461" in capsys.readouterr().err
    assert len(lines(path)) == 1


def test_results_go_to_no_pipe(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("repeat: 1\ninside: measured:work\n", CODE)
    os.mkfifo("pipe")

    assert experiment("run", path, "-o", "pipe") == 2
    assert "error[HP413]: the results 'pipe' cannot be written" in capsys.readouterr().err


GOOD = json.dumps({"event": "repetition", "format_version": 1, **synthetic(0)}) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        "x\n",
        "notes in one line",
        GOOD + "notes",
        "[]\n",
        '{"event": "apply"}\n',
        '{"event": "repetition", "format_version": 1}\n',
        GOOD.replace('"format_version": 1', '"format_version": 2'),
        GOOD.replace('"a": 0', '"a": [0]'),
        GOOD.replace('"repetition": 0', '"repetition": true'),
        GOOD.replace('"metrics": {}', '"metrics": {"x": true}'),
        GOOD.replace('"metrics": {}', '"metrics": {"x": NaN}'),
        GOOD.replace('"result": "ok"', '"result": "weird"'),
        GOOD.replace('"units": {}', '"units": {"x": 3}'),
        GOOD.replace('"provenance": {}', '"provenance": {"runtime": 3}'),
        GOOD.replace('"provenance": {}', '"provenance": {"runtime": {"kind": ["a"]}}'),
        GOOD + GOOD,
    ],
)
def test_what_are_no_results_is_refused(write: Write, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("inside: measured:work\n", CODE)
    path.with_name("e.results.jsonl").write_text(text)

    for action in ("resume", "run"):
        assert experiment(action, path) == 2
        said = capsys.readouterr().err
        assert "error[HP461]: these results cannot be used: " in said
        remove = {GOOD + GOOD: "remove line 1 or line 2", GOOD + "notes": "remove line 2"}
        assert f"hint: {remove.get(text, 'remove line 1 if others are results')}, or name another file\n" in said
    assert path.with_name("e.results.jsonl").read_text() == text


def test_more_repetitions_resume_and_another_measurement_does_not(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "def work(layout): pass\n"
    assert experiment("run", path := write("repeat: 1\ninside: measured:work\n", code)) == 0
    write("repeat: 2\nname: other\ninside: measured:work\n", code)
    assert experiment("resume", path) == 0
    assert len(lines(path)) == 2

    write("repeat: 2\nwarmup: 3\ninside: measured:work\n", code)
    assert experiment("resume", path) == 2
    assert "what they measured is not what the file says now" in capsys.readouterr().err
    write("repeat: 2\ninside: measured:work\n", code, plan="hipplan: 1\nregions: {a: {size: 2MiB}}\n")
    assert experiment("resume", path) == 2
    assert "the plan has changed since" in capsys.readouterr().err
    assert len(lines(path)) == 2


def test_what_failed_before_the_plan_was_read_is_resumed(write: Write) -> None:
    path = write("repeat: 1\ninside: measured:work\n", "import no_such_module\ndef work(layout): pass\n")
    assert experiment("run", path, "--dry-run") == 0  # nothing is imported
    assert experiment("run", path) == 4

    assert experiment("resume", path, "--repeat", 2) == 4
    assert [line["error"]["code"] for line in lines(path)] == ["HP463", "HP463"]


def test_a_run_of_some_cells_is_resumed_to_all(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("vary: {size: [4MiB, 12MiB]}\nrepeat: 2\ninside: measured:work\n", "def work(layout): pass\n")

    assert experiment("run", path, "--only", "size=12MiB", "--repeat", 1) == 0
    assert [line["cell"]["vary"]["size"] for line in lines(path)] == ["12MiB"]
    assert experiment("resume", path) == 0
    assert set(repetitions(path).values()) == {1} and len(repetitions(path)) == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--only", "size=1MiB"], "--only: 'size' is never 1MiB; it is one of 4MiB"),
        (["run", "--only", "sise=4MiB"], "--only: there is no axis 'sise'; did you mean 'size'?"),
        (["run", "--only", "size"], "--only: write AXIS=VALUE"),
        (["run", "--repeat", "0"], "--repeat: from 1 to 100000"),
        (["report", "--repeat", "1"], "--repeat is for run, resume, not for report"),
    ],
)
def test_wrong_options_are_refused(
    write: Write, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("vary: {size: [4MiB]}\ninside: measured:work\n", "def work(layout): pass\n")

    assert experiment(arguments[0], path, *arguments[1:]) == 2
    assert said in capsys.readouterr().err
    assert not path.with_name("e.results.jsonl").exists()
