"""Options that several verbs share: variables, --strict, --quiet, examples; completion."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from hipplan.cli.arguments import Parser
from hipplan.cli.main import VERBS
from hipplan.cli.main import run as main
from hipplan.codes import CODES
from tests.cli.conftest import Run

COUNTED = "hipplan: 1\nvars: {n: 1, name: x}\nbuffers: {b: {kind: device, count: $(n), size: 1MiB}}\n"
WARNED = "hipplan: 1\nallocations: {a: {size: 2MiB}}\n"


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    path = tmp_path / "counted.yaml"
    path.write_text(COUNTED)
    return path


@pytest.fixture
def warned(tmp_path: Path) -> Path:
    """A good plan with a warning."""
    path = tmp_path / "warned.yaml"
    path.write_text(WARNED)
    return path


def buffers(capsys: pytest.CaptureFixture[str], *arguments: object) -> int:
    """How many buffers the preview of a plan has."""
    assert main(["preview", *map(str, arguments), "--machine", "sim-1", "--format", "json"]) == 0
    return len(json.loads(capsys.readouterr().out)["resources"])


def test_variables_come_from_files_and_the_environment_and_the_nearest_to_the_command_wins(
    counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two, three = tmp_path / "two.yaml", tmp_path / "three.yaml"
    two.write_text("n: 2\n")
    three.write_text('{"n": 3, "name": "y"}\n')
    monkeypatch.setenv("HIPPLAN_VAR_n", "4")
    monkeypatch.setenv("HIPPLAN_VAR_of_another_plan", "1")

    assert buffers(capsys, counted) == 4
    assert buffers(capsys, counted, "--var-file", two) == 2
    assert buffers(capsys, counted, "--var-file", two, "--var-file", three) == 3
    assert buffers(capsys, counted, "--var-file", two, "--var", "n=5") == 5


def test_the_older_of_two_plans_has_variables_of_its_own(
    counted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.yaml"
    old.write_text("n: 2\n")
    line = ["preview", counted, "--var", "n=2", "--from", counted, "--machine", "sim-1", "--detailed-exitcode"]

    assert main([*map(str, line)]) == 6
    assert main([*map(str, line), "--from-var-file", str(old)]) == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n: [3]\n", "the variable 'n' must be an integer, true, false or text"),
        ("n: 1.5\n", "the variable 'n' must be an integer, true, false or text"),
        ("- 3\n", "a file of variables holds NAME: VALUE"),
        ("m: 3\n", "the plan has no variable 'm'"),
        ("", "write one line per variable"),
        ("n: 1\nn: 2\n", "error[HP005]"),
        (COUNTED, "is a plan, not a file of variables"),
        ("n: 0\n", "given: n=0"),
    ],
)
def test_a_bad_file_of_variables_is_one_error_with_a_place(
    text: str, why: str, counted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "vars.yaml"
    file.write_text(text)

    assert main(["validate", str(counted), "--var-file", str(file)]) == 2
    assert why in capsys.readouterr().err


def test_what_variables_are_read_from_is_not_written_over(counted: Path, tmp_path: Path) -> None:
    file = tmp_path / "vars.yaml"
    file.write_text("n: 2\n")

    assert main(["lock", str(counted), "--machine", "sim-1", "--var-file", str(file), "-o", str(file)]) == 2
    assert main(["apply", str(counted), "--once", "--var-file", str(file), "--record", str(file)]) == 2
    assert file.read_text() == "n: 2\n"


@pytest.mark.parametrize("line", ["validate", "preview --machine sim-1", "preview --machine sim-1 --format json",
                                  "lock --machine sim-1", "apply --once --runtime sim"])  # fmt: skip
def test_strict_makes_warnings_errors(line: str, warned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), str(warned)]) == 0
    capsys.readouterr()

    assert main([*line.split(), str(warned), "--strict"]) == 2
    output = capsys.readouterr().err
    assert "error[HP251]" in output
    assert "--strict: warnings are errors" in output


def test_strict_annotates_errors(warned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(warned), "--strict", "--format", "github"]) == 2
    assert capsys.readouterr().out.startswith("::error ")


@pytest.mark.parametrize("line", ["validate", "apply --once --runtime sim", "fmt --write", "fmt --check"])
def test_quiet_says_only_what_is_wrong(
    line: str, counted: Path, warned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*line.split(), "-q", str(counted)])
    assert capsys.readouterr() == ("", "")

    if "fmt" not in line:
        main([*line.split(), "-q", str(warned)])
        assert "warning[HP251]" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_each_help_ends_with_examples_that_the_parser_takes(verb: str) -> None:
    module = import_module(f"hipplan.cli.{verb}")
    parser = Parser(f"hipplan {verb}", str(module.__doc__).partition(": ")[2])
    module.declare(parser)
    heading, *examples = str(parser.epilog).splitlines()

    assert heading == "examples:"
    assert examples
    for example in examples:
        program, of_verb, *arguments = shlex.split(example.partition(" > ")[0])
        assert (program, of_verb) == ("hipplan", verb)
        parser.read(arguments)


def test_the_list_of_codes_has_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--list"]) == 0
    assert list(CODES) == sorted(CODES)
    assert capsys.readouterr().out.splitlines() == [f"{code}  {title}" for code, title in CODES.items()]


@pytest.mark.parametrize("line", [["verify", "abc"], ["import", "safetensors", "x", "--tp", "abc"]])
def test_what_is_no_number_is_refused(line: list[str], hipplan: Run) -> None:
    done = hipplan(*line)

    assert done.returncode == 2
    assert "not a whole number: 'abc'\n" in done.stderr


@pytest.mark.parametrize("line", [["explain"], ["explain", "HP101", "--list"]])
def test_explain_wants_a_code_or_the_list(line: list[str], hipplan: Run) -> None:
    done = hipplan(*line)

    assert done.returncode == 2
    assert "give a code such as HP101, or --list" in done.stderr


def test_the_version_names_the_compiler_and_the_libraries(hipplan: Run) -> None:
    import hipplan as package
    from hipplan import _core

    first, *others = hipplan("--version").stdout.splitlines()
    reported = dict(line.strip().split(": ", 1) for line in others)

    assert first == f"hipplan {package.__version__}"
    assert reported["compiled part"] == _core.compiler
    assert Path(reported["sim"]).is_file()
    assert Path(reported["cuda"]).is_file()
    assert reported["amd"]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["hipplan", "val"], ["validate"]),
        (["hipplan", "apply", "--var-"], ["--var-file"]),
        (["hipplan", "preview", "--machine", "mi21"], ["mi210"]),
        (["hipplan", "schema", "mach"], ["machine"]),
        (["hipplan", "validate", "counted.y"], ["counted.yaml"]),
    ],
    ids=str,
)
def test_bash_completes(words: list[str], completed: list[str], counted: Path, hipplan: Run) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = hipplan("completion", "bash").stdout
    script += f"\nCOMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=()\n"
    script += '_shtab_hipplan 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        [bash, "--norc", "-c", script], capture_output=True, text=True, cwd=counted.parent, env=dict(os.environ)
    )

    assert done.stdout.split() == completed
