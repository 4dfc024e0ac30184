"""The house rules, held by a test: who imports whom, how long things get, what must be documented."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

PYTHON = sorted((ROOT / "hipplan").rglob("*.py"))
CPP = sorted(path for path in (ROOT / "cpp").rglob("*") if path.suffix in (".cpp", ".hpp", ".h"))


def _table() -> str:
    """Python's rooms in ARCHITECTURE.md."""
    return (ROOT / "ARCHITECTURE.md").read_text().split("## Rooms")[1].split("| `cpp/")[0]


def rooms() -> dict[str, int]:
    """Folder, or module outside of them -> its row in ARCHITECTURE.md."""
    first_cells = re.findall(r"^\| (`.*?) \|", _table(), re.M)
    return {name: row for row, cell in enumerate(first_cells) for name in re.findall(r"`(\w+)`", cell)}


def may_touch_core() -> set[str]:
    return set(re.findall(r"`(\w+)`\*", _table()))


def refuse(offenders: Iterable[str], rule: str) -> None:
    """Fail with every offender, a line each."""
    if lines := list(offenders):
        pytest.fail("\n  ".join([f"{rule}:", *lines]), pytrace=False)


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _room(parts: Sequence[str]) -> str:
    """parts: of a module's name, behind `hipplan`. A kind's folder has a file of each of two rooms."""
    if parts[0] == "kinds":
        return "language" if parts[-1] in ("kinds", "plan", "plans") else "program"
    return parts[0]


def room(path: Path) -> str:
    names = [part.removesuffix(".py") for part in path.relative_to(ROOT / "hipplan").parts if part != "__init__.py"]
    return _room(names) if names else ""


def imports(path: Path) -> set[str]:
    """The rooms of hipplan that a file imports from, anywhere in it."""
    collected = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            collected |= {_room(alias.name.split(".")[1:]) for alias in node.names if alias.name.startswith("hipplan.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "hipplan":
            collected |= {alias.name for alias in node.names} - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and node.module == "hipplan.kinds":
            collected |= {_room(["kinds", alias.name]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("hipplan."):
            collected.add(_room(node.module.split(".")[1:]))
    return collected


def test_each_file_of_program_and_layout_is_described() -> None:
    for name in ("program", "layout"):
        page = (ROOT / "ARCHITECTURE.md").read_text()
        section = re.split(r"\n##", page.split(f"### The files of `{name}`")[1])[0]
        files = {path.stem for path in (ROOT / "hipplan" / name).glob("*.py")} - {"__init__"}
        described = {*re.findall(r"`(\w+)`", section)}
        refuse(sorted(files ^ described), f"ARCHITECTURE.md says what each file of {name} is about")


def test_a_class_name_has_one_meaning() -> None:
    """A model of a plan may be called as what is made of it; pybind11's classes are in a module of their own."""
    places: dict[str, list[str]] = {}
    for path in PYTHON:
        if path.name == "plan.py":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(place(path))
    refuse(
        [f"{name}: {', '.join(files)}" for name, files in places.items() if len(files) > 1], "a class name is used once"
    )


def test_a_room_imports_only_from_rooms_above_it() -> None:
    order, allowed = rooms(), may_touch_core()
    files = [path for path in PYTHON if room(path) not in ("", "__main__")]
    refuse({room(path) for path in files} - set(order), "a room has a row in ARCHITECTURE.md")

    offenders = []
    for path in files:
        here, imported = room(path), imports(path)
        offenders += [f"{place(path)} must not import {o}" for o in imported - {"_core"} if order[o] > order[here]]
        if "_core" in imported and here not in allowed:
            offenders.append(f"{place(path)} must not touch the compiled part")
    refuse(offenders, "a room imports only from rooms above it")


def test_each_room_says_what_comes_in_and_what_goes_out() -> None:
    for name in (
        "files", "language", "machines", "program", "lowering", "pictures", "layout", "processes", "ranks", "show",
    ):  # fmt: skip
        answer = ast.get_docstring(ast.parse((ROOT / "hipplan" / name / "__init__.py").read_text()))

        assert answer, name
        assert {"In:", "Out:"} <= set(answer.split()), name


def test_a_cpp_file_includes_only_from_below() -> None:
    core = {"hip", "core"}
    allowed = {"hip": {"hip"}, "core": core, "c": core, "bindings": {*core, "bindings"}, "runtimes": {"hip"}}
    offenders = (
        f"{place(path)} must not include {folder}/"
        for path in CPP
        for folder in re.findall(r'#include "(hip|core|bindings|runtimes)/', path.read_text())
        if folder not in allowed[path.relative_to(ROOT / "cpp").parts[0]]
    )
    refuse(offenders, "a folder includes only from those below it")


def test_no_streams_are_used() -> None:
    """A build with a C++ runtime of its own and PyTorch with another would take each other's facets: `import torch`
    ended the process after bytes had been moved, on a machine whose compiler links libstdc++ statically."""
    header = re.compile(r"#include <(\w*stream|locale|format|regex|iomanip|codecvt)>")
    refuse((f"{place(path)}: {name}" for path in CPP for name in header.findall(path.read_text())), "no streams")


def test_a_cpp_file_uses_the_names_that_it_takes_over() -> None:
    """clang-tidy reads several sources at once, and looks at using declarations and aliases in the first file alone."""
    taken = re.compile(r"^ *(?:using [\w:]*?(\w+)::(?!\1;)(\w+);|namespace (\w+) = )", re.M)
    offenders = []
    for path in CPP:
        text = path.read_text()
        names = {used or alias for _, used, alias in taken.findall(text)}
        offenders += [f"{place(path)}: {name}" for name in names if len(re.findall(rf"\b{name}\b", text)) < 2]
    refuse(offenders, "a name that a file takes over is used in it")


def test_a_file_holds_one_idea() -> None:
    long = (place(path) for path in PYTHON + CPP if len(path.read_text().splitlines()) > 400)
    refuse(long, "over 400 lines: it usually holds two ideas")


def test_unit_tests_apply_nothing() -> None:
    """So that `make quick` can run all of tests/unit."""
    files = (ROOT / "tests" / "unit").glob("*.py")
    applies = (place(path) for path in files if re.search(r"\bSimulator\b|\bapply\(", path.read_text()))
    refuse(applies, "a test that applies a plan lies beside what it tests, as in tests/layout and tests/machines")


def test_a_function_fits_a_screen() -> None:
    long = (
        f"{place(path)}: {node.name}"
        for path in PYTHON
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if node.end_lineno is not None and node.end_lineno - node.lineno >= 60
    )
    refuse(long, "over 60 lines")


def test_variables_are_named_for_what_they_are() -> None:
    said_of_all = {"one", "found", "told", "way", "it"}
    offenders = (
        f"{place(path)}:{node.lineno}: {name}"
        for path in PYTHON
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        if (name := node.arg if isinstance(node, ast.arg) else node.id) in said_of_all
    )
    refuse(offenders, "a variable says what it is")


def test_docstrings_of_functions_and_classes_are_sentences() -> None:
    """Those that begin so have no subject; a note on an attribute may."""
    no_subject = {"Of", "As", "Those", "That", "With", "For", "By", "From"}
    offenders = (
        f"{place(path)}:{node.lineno}: {text.splitlines()[0]}"
        for path in PYTHON
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        if (text := ast.get_docstring(node) or "").partition(" ")[0] in no_subject
    )
    refuse(offenders, "a docstring is a sentence with a subject or a verb")


def test_json_is_as_the_standard_has_it() -> None:
    offenders = (
        place(path)
        for path in PYTHON
        if path.name not in ("strict_json.py", "loader.py")  # the latter only digests it
        and re.search(r"(?<!strict_)json\.(dump|load)", path.read_text())
    )
    refuse(offenders, "use strict_json")


def test_every_code_that_is_raised_is_registered_and_explained() -> None:
    from hipplan.codes import CODES

    used = {code for path in PYTHON for code in re.findall(r'"(HP\d{3})"', path.read_text())}
    pages = {path.stem for path in (ROOT / "hipplan" / "explain").glob("HP*.md")}

    assert used <= set(CODES)
    assert set(CODES) == pages


def test_every_code_is_raised_somewhere() -> None:
    from hipplan.codes import CODES

    of_c = [path for path in CPP if path.parent.name == "c"]
    elsewhere = "".join(p.read_text() for p in [*PYTHON, *of_c] if p.name != "codes.py")
    assert {code for code in CODES if code not in elsewhere} == set()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_nothing_leads_out_of_the_repository() -> None:
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    for name in files:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".cpp", ".hpp", ".yaml", ".toml", ".sh") and path.exists():
            assert "/work" + "/" not in path.read_text(), f"{name} names a path of one machine"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_no_banned_phrase_is_used() -> None:
    """tools/phrases.py has the list, and what to write instead."""
    from tools import phrases

    assert phrases.found("a\n// number that\n// is" + " none") == [(2, "that is" + " none")]
    assert phrases.everywhere() == []


def test_readme_code_runs() -> None:
    """The README's Python, as it stands."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    exec(compile(code, "README.md", "exec"), {})


def test_readme_plan_is_valid() -> None:
    from hipplan.language.loader import load
    from hipplan.lowering.compiler import compile as compile_plan
    from hipplan.machines.profiles import load_machine

    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert compile_plan(load(text), load_machine("sim-2")).steps


def test_readme_plan_is_the_one_in_its_picture() -> None:
    """The picture is of plans/quickstart.yaml (tests/golden/test_pictures.py)."""
    text = (ROOT / "README.md").read_text()
    (plan,) = re.findall(r"```yaml\n# plans/quickstart.yaml\n(.*?)```", text, re.S)

    assert (ROOT / "plans" / "quickstart.yaml").read_text().endswith(plan)
    assert text.index("quickstart.svg") < text.index("\n## ")  # on the first screen


def test_a_block_that_shows_a_plan_names_its_file() -> None:
    offenders = [f"{page.name}: {block.splitlines()[0]}" for page in PAGES if page.name not in GENERATED
                 for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.S | re.M)
                 if not re.match(r"# [\w./-]+\.ya?ml", block) and "yaml-language-server" not in block]  # fmt: skip

    assert offenders == []


GENERATED = ("errors.md", "plan-reference.md", "experiment-reference.md")
PAGES = [
    ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
]


def _anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = page.parent / path if path else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def test_links_lead_somewhere() -> None:
    offenders = (
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text())
        if not target.startswith("http") and not _leads_somewhere(page, target)
    )
    refuse(offenders, "a link leads nowhere")


def test_the_changelog_says_what_a_release_is() -> None:
    """Fixes of what was never released are no news, and a merge of an old list brings 300 lines of them back."""
    for release in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]:
        assert len(release.splitlines()) <= 60, release.splitlines()[0]


def test_every_page_of_the_docs_is_in_the_navigation_of_the_site() -> None:
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))

    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= named
