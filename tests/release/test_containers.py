"""The Dockerfiles, as far as they can be checked without an engine: a linter, their page, and what they copy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools import containers

FILES = sorted((ROOT / "containers").glob("*.Dockerfile"))
PAGE = (ROOT / "docs" / "containers.md").read_text()
STEPS = {file.name: list(containers.steps(file.read_text())) for file in FILES}


def test_the_page_has_each_file_with_its_image() -> None:
    rows = re.findall(r"^\| `containers/(\S+)` \| `(\S+)` \|", PAGE, re.M)

    assert dict(rows) == {name: steps[0][1] for name, steps in STEPS.items()}
    assert {steps[0][0] for steps in STEPS.values()} == {"FROM"}


def test_the_page_builds_and_runs_each_file() -> None:
    for name in STEPS:
        kind = name.removesuffix(".Dockerfile")
        assert f"docker build -f containers/{name} -t hipplan-{kind} ." in PAGE
        assert re.search(rf"^docker run --rm .* hipplan-{kind}$", PAGE, re.M)


def test_the_files_differ_in_their_image_alone() -> None:
    first, *others = (steps[1:] for steps in STEPS.values())

    assert len(others) == 1
    assert others[0] == first


def test_the_quickstart_runs_while_an_image_is_built_and_when_it_is_started() -> None:
    for steps in STEPS.values():
        assert ("RUN", "hipplan apply quickstart.yaml --once --runtime sim --quiet") in steps
        assert steps[-1] == ("CMD", '["hipplan", "apply", "quickstart.yaml", "--once"]')


def test_what_is_copied_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {rest.split()[0] for steps in STEPS.values() for word, rest in steps if word == "COPY"}

    assert copied == kept
    assert (ROOT / "plans" / "quickstart.yaml").is_file()
    assert "-m tools.release make build/release" in (ROOT / "Makefile").read_text()


def test_hadolint_accepts_them() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("needs hadolint: pip install --group integrations")
    done = subprocess.run([hadolint, "--no-color", *FILES], capture_output=True, text=True)

    assert (done.stdout, done.returncode) == ("", 0)


def test_lines_that_continue_and_comments_between_them_are_one_step() -> None:
    text = '# a\nFROM x\n\n# b\nRUN one \\\n # c\n && two\nCMD ["three"]\n'

    assert list(containers.steps(text)) == [("FROM", "x"), ("RUN", "one && two"), ("CMD", '["three"]')]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "etc").mkdir(parents=True)
    return tmp_path / "root"


def test_a_step_copies_into_the_folder_that_an_earlier_one_has_set(root: Path) -> None:
    containers.carry_out(("WORKDIR", "/plans"), root)
    containers.carry_out(("COPY", "plans/quickstart.yaml ."), root)

    assert (root / "plans" / "quickstart.yaml").read_bytes() == (ROOT / "plans" / "quickstart.yaml").read_bytes()


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (("COPY", "build/none-*.whl /w/"), "COPY build/none-\\*.whl: there is no such file; wheels are made by"),
        (("HEALTHCHECK", "NONE"), "tools/containers.py does not know HEALTHCHECK"),
        (("RUN", "true"), "the step failed with exit code [1-9][0-9]*: RUN true"),  # there is no shell in this root
    ],
)
def test_a_step_that_cannot_be_carried_out_is_named(step: containers.Step, reason: str, root: Path) -> None:
    with pytest.raises(containers.Failed, match=reason):
        containers.carry_out(step, root)
