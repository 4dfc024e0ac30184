"""tools/release.py: what it does before and after the builds. `make release` compiles for minutes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import hipplan
from tests.conftest import ROOT
from tools import quick, release
from tools import release_checks as checks

if shutil.which("git") is None:
    pytest.skip("git is not installed", allow_module_level=True)

WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
ADDRESS = "https://git.example.org/someone/hipplan"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository that release.py takes for its own."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, folder)
    (folder / "hipplan").mkdir()
    shutil.copy(ROOT / "hipplan" / "__init__.py", folder / "hipplan")
    for line in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *line], cwd=folder, check=True)
    monkeypatch.setattr(release, "ROOT", folder)
    return folder


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Why release.py refuses."""
    assert release.main(*map(str, arguments)) == 1
    error = capsys.readouterr().err
    assert error.startswith("\nThe release is refused: ")
    return error


def test_a_changelog_of_another_version_is_refused_before_anything_is_built(
    clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (clone / "CHANGELOG.md").write_text("# Changes\n\n## 0.0.9, 2026-01-01\n")
    error = refused(capsys, "make", tmp_path / "files", "--pythons", sys.executable)

    assert f"this is {hipplan.__version__}: write a section '## {hipplan.__version__}, DATE'" in error
    assert not (tmp_path / "files").exists()


def test_without_any_python_nothing_is_built(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "make", tmp_path / "files", "--pythons", "no-such-python")

    assert "none of no-such-python is installed: name others, as PYTHONS=/path/of/python make release" in error


def test_outside_of_a_clone_it_says_so(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(clone / ".git")

    assert "a release is made from a clone with git, and 'git ls-files -z' failed" in refused(capsys, "check", tmp_path)


def test_an_init_without_a_version_is_refused(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clone / "hipplan" / "__init__.py").write_text("")

    assert 'hipplan/__init__.py has no line such as __version__ = "0.1.0"' in refused(capsys, "check", tmp_path)


def test_only_what_git_knows_is_a_source_and_changes_are_noted(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (clone / "notes.txt").touch()
    source = release.read_source()

    assert "notes.txt" not in source.tracked
    assert "hipplan/__init__.py" in source.tracked
    assert "note: 1 files are changed or new, not committed" in capsys.readouterr().out


def test_files_have_the_modes_that_git_knows(clone: Path, tmp_path: Path) -> None:
    (clone / "LICENSE").chmod(0o664)
    (clone / "README.md").chmod(0o775)
    copy = release.copy_of(["LICENSE", "README.md"], tmp_path / "copy")

    assert (copy / "LICENSE").stat().st_mode & 0o777 == 0o644
    assert (copy / "README.md").stat().st_mode & 0o777 == 0o755


def test_the_address_of_the_repository_becomes_the_links(clone: Path) -> None:
    version = hipplan.__version__
    release.write_links(clone, ADDRESS, version)
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    links = tomllib.loads((clone / "pyproject.toml").read_text())["project"]["urls"]
    readme = (clone / "README.md").read_text()

    assert {label: links[label] for label in checks.LINKS} == {
        "Repository": ADDRESS,
        "Issues": f"{ADDRESS}/issues",
        "Changelog": f"{ADDRESS}/blob/v{version}/CHANGELOG.md",
    }
    assert f"({ADDRESS}/raw/v{version}/docs/pictures/quickstart.svg)" in readme
    assert f"[Tutorial]({ADDRESS}/blob/v{version}/docs/tutorial.md)" in readme
    assert [target for target in re.findall(r"\]\(([^)]+)\)", readme) if not target.startswith("https://")] == []


def test_without_an_address_nothing_is_changed(clone: Path) -> None:
    release.write_links(clone, "", hipplan.__version__)

    for name in ("pyproject.toml", "README.md"):
        assert (clone / name).read_bytes() == (ROOT / name).read_bytes()


def test_a_command_that_fails_is_shown_with_its_last_lines() -> None:
    with pytest.raises(release.Refused, match=r"(?s)exit code 3; its last lines:\n1\n.*39\n40\n.*python"):
        release.run(sys.executable, "-c", "import sys; print(*range(41), sep='\\n'); sys.exit(3)")


def folders(tmp_path: Path, *contents: dict[str, bytes]) -> list[Path]:
    made = []
    for number, content in enumerate(contents):
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(folder)
        for name, data in content.items():
            (folder / name).write_bytes(data)
    return made


def test_folders_with_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = folders(tmp_path, {"hipplan-1-a.whl": b"x", "hipplan-1-b.whl": b"x"}, {"hipplan-1-a.whl": b"x"})

    assert "hipplan-1-b.whl is only in one of the two folders" in refused(capsys, "compare", first, second)
    assert release.main("compare", str(second), str(second)) == 0


def test_folders_with_other_bytes_are_refused(pure: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = pure.read_bytes()
    first, second = folders(tmp_path, {pure.name: data}, {pure.name: data[:-1] + b"!"})

    assert f"{pure.name}, built twice: " in refused(capsys, "compare", first, second)


def test_an_empty_folder_is_no_release(clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "must hold an sdist and a pure-Python wheel" in refused(capsys, "check", tmp_path)
    assert "there is nothing to compare" in refused(capsys, "compare", tmp_path, tmp_path)


def test_a_tag_must_be_of_the_version_and_asks_for_links(
    clone: Path, pure: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(pure, tmp_path)
    error = refused(capsys, "check", tmp_path, "--tag", "v9.9.9")

    assert f"the tag is v9.9.9, but hipplan/__init__.py has {hipplan.__version__}" in error
    assert f"{pure.name} has no project links: make it with --repository" in error


def test_the_files_of_an_earlier_release_are_removed(tmp_path: Path) -> None:
    first, second = folders(tmp_path, {"hipplan-1-a.whl": b"new"}, {"hipplan-0-a.whl": b"old", "notes.txt": b""})
    release.move(release.files_of(first), second)

    assert {path.name for path in second.iterdir()} == {"hipplan-1-a.whl", "notes.txt", release.SUMS}
    line = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437  hipplan-1-a.whl\n"
    assert (second / release.SUMS).read_text() == line


def test_the_installed_tests_see_no_sources(tmp_path: Path) -> None:
    copy = quick.copied(tmp_path)

    assert (copy / "tests" / "unit" / "test_units.py").is_file()
    assert not (copy / "hipplan").exists()
    assert [path for path in copy.rglob("*") if path.suffix == ".so"] == []


def test_the_workflow_agrees_with_githubs_schema() -> None:
    pytest.importorskip("check_jsonschema")
    line = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stdout


def test_the_workflow_publishes_nothing_and_pins_what_builds() -> None:
    text = WORKFLOW.read_text()

    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert not re.search(r"twine upload|gh-action-pypi-publish|id-token|secrets\.", text)
    assert re.search(r'"cibuildwheel==\d+\.\d+\.\d+"', text)


def test_every_python_of_the_metadata_gets_a_wheel() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"]))
    built = re.findall(r"cp3(\d+)-", project["tool"]["cibuildwheel"]["build"])

    assert named == built
    pythons = " ".join(f"python3.{minor}" for minor in named)
    assert f"\nPYTHONS ?= {pythons}\n" in (ROOT / "Makefile").read_text()


def test_nothing_says_that_hipplan_can_be_had_from_pypi() -> None:
    """Until a release is published, that name may be anybody's. A folder or a wheel can be installed."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "hipplan").rglob("*.py")]
    told = [f"{path.name}: {line}" for path in pages for line in path.read_text().splitlines()
            if re.search(r"pip install\S* ['\"]?hipplan\b(?!-)", line)]  # fmt: skip

    assert told == ["README.md: No release is published yet, so there is no `pip install hipplan`."]
