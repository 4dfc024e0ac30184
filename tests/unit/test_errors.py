"""Every code has a page, and the examples on the pages do what the pages say."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from hipplan.codes import CODES
from hipplan.errors import (
    ApplyError,
    Diagnostic,
    ExitCode,
    HipplanError,
    MachineError,
    PlanError,
    Span,
    suggest_or_list,
)
from hipplan.explain import explain
from hipplan.language.canonical import canonical
from hipplan.language.findings import in_order
from hipplan.language.loader import load
from hipplan.language.source import load_yaml
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.machines.profiles import load_machine

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```yaml\n(.*?)```", re.S)
WITH_ESCAPES = {"HP002", "HP003"}
"""Pages whose examples have bytes that a page cannot have, as \\xe9."""
WITH_EXAMPLES = [code for code in CODES if "```yaml" in str(explain(code))]

ELSEWHERE = {"HP027", "HP028", "HP314", "HP320", "HP321", "HP322"}
"""Not of a plan and a machine alone: of a runtime, of a lock, of a thousand others."""


def example(code: str, which: int) -> tuple[str, bool]:
    """The failing (0) or the right (1) example of a page, and whether it is written with escapes."""
    return EXAMPLE.findall(str(explain(code)))[which], code in WITH_ESCAPES


def codes_of(text: str, escaped: bool, folder: Path) -> list[str]:
    """What `hipplan` says about an example: its codes, errors and warnings alike.

    `# file: NAME` begins a further file, `# run: VERB FILE [--machine M] [--var K=V]` says how it is used.
    """
    first, *others = re.split(r"^# file: (\S+)\n", text, flags=re.M)
    files = {"plan.yaml": first, **dict(zip(others[::2], others[1::2], strict=True))}
    for name, content in files.items():
        raw = content.encode().decode("unicode_escape").encode("latin-1") if escaped else content.encode()
        (folder / name).write_bytes(raw)
    if text.startswith("# run: fmt"):
        try:
            canonical(load_yaml(folder / "plan.yaml"))
        except PlanError as error:
            return [diagnostic.code for diagnostic in error.diagnostics]
        return []
    run = re.search(r"^# run: \w+ (\S+)(?: --machine (\S+))?(?: --var (\w+)=(\S+))?$", text, re.M)
    file, machine, key, value = run.groups() if run else ("plan.yaml", None, None, None)
    try:
        plan = load(folder / file, vars={key: value} if key else None)
        if not machine:
            return [warning.code for warning in plan.warnings]
        profile = folder / machine if machine.endswith(".yaml") else machine
        return [warning.code for warning in compile_plan(plan, load_machine(profile)).warnings]
    except HipplanError as error:
        return [diagnostic.code for diagnostic in error.diagnostics]


def test_every_code_has_a_page_with_its_title() -> None:
    pages = {code: explain(code) or "" for code in CODES}

    assert [code for code, page in pages.items() if not page.startswith(f"# {code}: {CODES[code]}\n")] == []
    assert {code for code in CODES if code < "HP400"} <= {*ELSEWHERE, *WITH_EXAMPLES}


@pytest.mark.parametrize("code", WITH_EXAMPLES)
def test_the_failing_example_fails_with_this_code_alone(code: str, tmp_path: Path) -> None:
    assert set(codes_of(*example(code, 0), tmp_path)) == {code}


@pytest.mark.parametrize("code", WITH_EXAMPLES)
def test_the_right_example_says_nothing(code: str, tmp_path: Path) -> None:
    assert codes_of(*example(code, 1), tmp_path) == []


def test_codes_used_in_the_source_are_in_the_table_and_the_other_way_round() -> None:
    import hipplan

    source = Path(str(hipplan.__file__)).parent
    used = {
        code
        for file in source.rglob("*.py")
        if file.name != "codes.py"
        for code in re.findall(r"\bHP[0-9]{3}\b", re.sub(r'""".*?"""', "", file.read_text(), flags=re.S))
    }
    header = (ROOT / "cpp" / "c" / "hipplan.h").read_text()
    used |= {f"HP{number}" for number in re.findall(r"HIPPLAN_\w+ = ([0-9]{3}),? ", header)}

    assert used == set(CODES)


def test_unknown_codes_have_no_page() -> None:
    assert explain("HP999") is None
    assert explain("../errors") is None


def test_the_text_of_a_diagnostic_points_at_the_token() -> None:
    line = "  kv: {device: gpu.1, size: 1GiB}"
    span = Span("plan.yaml", 14, 29, 14, 33, line)
    diagnostic = Diagnostic("HP105", "too small", span, label="here", why="because", hint="more", notes=("x: y",))

    assert str(diagnostic) == (
        "plan.yaml:14:29: error[HP105]: too small\n"
        "   14 |   kv: {device: gpu.1, size: 1GiB}\n"
        "      |                             ^^^^ here\n"
        "  why:  because\n"
        "  hint: more\n"
        "  x: y"
    )


def test_the_caret_follows_tabs_and_long_lines_are_cut_around_it() -> None:
    tabbed = str(Diagnostic("HP004", "x", Span("p", 1, 3, 1, 4, "\t\tvalue")))
    long = str(Diagnostic("HP004", "x", Span("p", 1, 1001, 1, 1006, " " + "a" * 999 + "WRONG" + "b" * 999)))

    assert tabbed.splitlines()[2] == "      | \t\t^"
    shown, caret = long.splitlines()[1:3]
    assert len(shown) < 200
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "WRONG"


def test_control_characters_of_a_file_do_not_reach_the_terminal() -> None:
    text = str(Diagnostic("HP003", "x", Span("p", 1, 1, 1, 2, "\x1b[31mred")))

    assert "\x1b" not in text


def test_diagnostics_come_in_the_order_of_the_file_and_repetitions_as_one() -> None:
    def at(line: int, expansion: str = "") -> Diagnostic:
        return Diagnostic("HP201", f"line {line}", Span("p", line, 1, line, 2, "x", expansion))

    reported = in_order([at(3), at(1, "a.0"), at(1, "a.1"), at(1, "a.2"), at(2), at(2)])

    assert [d.summary for d in reported] == ["line 1", "line 2", "line 2", "line 3"]
    assert reported[0].notes == ("and: 2 more of this each",)


def test_exit_codes_follow_the_kind_of_failure() -> None:
    diagnostic = Diagnostic("HP401", "x")

    assert PlanError(diagnostic).exit_code == ExitCode.INVALID == 2
    assert MachineError(diagnostic).exit_code == ExitCode.MACHINE == 3
    assert ApplyError(diagnostic).exit_code == ExitCode.ROLLED_BACK == 4
    assert ApplyError(diagnostic, undone=SimpleNamespace(leaks=("a",))).exit_code == ExitCode.LEAKED == 5
    assert str(PlanError([diagnostic, diagnostic])) == "error[HP401]: x\nerror[HP401]: x"


def test_json_of_a_diagnostic_holds_all_of_it() -> None:
    span = Span("p", 1, 2, 1, 5, "text", "a.0")

    result = Diagnostic("HP201", "x", span, "label", "why", "hint", "warning", ("n: 1",)).to_json()

    assert result["span"] == {
        "file": "p", "line": 1, "column": 2, "end_line": 1, "end_column": 5, "expansion": "a.0", "path": ""
    }  # fmt: skip
    assert (result["code"], result["severity"], result["notes"]) == ("HP201", "warning", ["n: 1"])


def test_a_typo_among_thousands_of_names_is_reported_in_a_line() -> None:
    names = [f"layer.{n}" for n in range(5000)] + ["lm_head.weight"]

    assert suggest_or_list("lm_head.wieght", names) == "did you mean 'lm_head.weight'?"
    assert suggest_or_list("x", names) == "there are: layer.0, layer.1, layer.2, layer.3, layer.4, ..."
    assert suggest_or_list("x", []) == "there are: none"
    members = ["layer.0", "layer.0.wq", "layer.1", "batch.0.1", "batch.1.0"]
    assert suggest_or_list("layer", members) == "there are: layer.0, layer.1"
    assert suggest_or_list("batch", members) == "there are: batch.0.1, batch.1.0"
