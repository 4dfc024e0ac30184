"""What other tools run: the pre-commit hook and the GitHub Action, as far as a machine without them can tell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

GOOD = "hipplan: 1\nbuffers: {b: {kind: device, size: 1MiB}}\n"
INVALID = "hipplan: 1\nbuffers: {b: {kind: devise, size: 1MiB}}\n"
COMPILER = re.compile(r"gcc|g\+\+|c\+\+|clang|hipcc|^cc$|^c[89]9|^hipplan$|^python")
HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


WORKFLOW = "on:   push\n"

# A Python that belongs to the distribution: pip installs nothing into it. An environment's own is written down.
PYTHON = """#!/bin/sh
case "$*" in
  "-m pip "*) echo "error: externally-managed-environment" >&2; exit 1 ;;
  "-m venv --clear {folder}")
    mkdir -p {folder}/bin
    cp {hipplan} {folder}/bin/hipplan
    printf '#!/bin/sh\\necho "pure=$HIPPLAN_PURE $@"\\n' >{folder}/bin/python
    chmod +x {folder}/bin/python ;;
  *) exec {python} "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with plans; hipplan and a Python that belongs to the distribution are on PATH."""
    (tmp_path / "plans" / "with space").mkdir(parents=True)
    (tmp_path / "plans" / "good.yaml").write_text(GOOD)
    (tmp_path / "plans" / "with space" / "good.yaml").write_text(GOOD)
    (tmp_path / "bin").mkdir()
    hipplan, python = tmp_path / "bin" / "hipplan", tmp_path / "bin" / "python3"
    hipplan.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hipplan "$@"\n')
    python.write_text(PYTHON.format(folder=tmp_path / "temp" / "hipplan", hipplan=hipplan, python=sys.executable))
    for program in (hipplan, python):
        program.chmod(0o755)
    return tmp_path


def environment(checkout: Path, **more: str) -> dict[str, str]:
    return os.environ | {"PATH": f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"} | more


class Action:
    """The steps of action.yml in a checkout, with what GitHub gives them."""

    def __init__(self, checkout: Path, inputs: dict[str, str]) -> None:
        self.checkout = checkout
        self.known = {f"inputs.{name}": about["default"] for name, about in ACTION["inputs"].items()}
        self.known |= {f"inputs.{name}": value for name, value in inputs.items()}

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: self.known[found[1]], text)

    def run(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        assert "${{" not in step["run"], "an expression in a script is an injection"
        output = self.checkout / "output"
        output.write_text("")
        variables = {name: self.filled(text) for name, text in step.get("env", {}).items()}
        variables |= {"GITHUB_ACTION_PATH": str(ROOT), "GITHUB_OUTPUT": str(output), "RUNNER_OS": "Linux"}
        variables |= {"RUNNER_TEMP": str(self.checkout / "temp"), "RUNNER_ARCH": "X64"}
        # As the runner starts `shell: bash`.
        line = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        more = environment(self.checkout, **variables)
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=self.checkout, env=more)
        for name, _, value in (line.partition("=") for line in output.read_text().splitlines()):
            self.known[f"steps.{step['id']}.outputs.{name}"] = value
        return done


def step(name: str) -> dict[str, Any]:
    result: dict[str, Any] = next(one for one in ACTION["runs"]["steps"] if one["name"] == name)
    return result


def check(checkout: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The action's last step, with hipplan installed already."""
    action = Action(checkout, inputs)
    action.known["steps.place.outputs.folder"] = str(checkout)
    return action.run(step("Check"))


def test_the_action_passes_good_plans(checkout: Path) -> None:
    done = check(checkout, machine="mi300x-8")

    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_the_action_annotates_a_bad_one_and_fails(checkout: Path) -> None:
    (checkout / "plans" / "bad.yaml").write_text(INVALID)
    done = check(checkout)

    assert done.returncode == 2
    assert done.stdout.startswith("::error file=plans/bad.yaml,line=2,")


def test_the_action_splits_its_inputs_as_a_shell_does_and_runs_none_of_them(checkout: Path) -> None:
    (checkout / "plans" / "vars.yaml").write_text(
        "hipplan: 1\nvars: {n: 1}\nbuffers: {b: {kind: device, size: $(n)}}\n"
    )
    files = "'plans/with space/good.yaml'\n plans/vars.yaml"

    assert check(checkout, files=files, arguments="--var 'n=2'").returncode == 2  # good.yaml has no variable n
    assert check(checkout, files="plans/vars.yaml", arguments="--var 'n=2'").returncode == 0
    for evil in ("$(touch pwned)", "`touch pwned`", "; touch pwned", "plans; touch pwned"):
        check(checkout, files=evil)
        check(checkout, machine=evil)
        check(checkout, arguments=evil)
        assert not (checkout / "pwned").exists()


def test_the_action_writes_sarif(checkout: Path) -> None:
    (checkout / "plans" / "bad.yaml").write_text(INVALID)
    done = check(checkout, sarif="out.sarif")

    assert done.returncode == 2
    assert '"ruleId": "HP104"' in (checkout / "out.sarif").read_text()


@pytest.mark.parametrize(
    ("files", "checked"),
    [
        ("plans/*.yaml", ["plans/[b].yaml", "plans/b.yaml", "plans/good.yaml"]),
        ("plans/**/good.yaml", ["plans/good.yaml", "plans/with space/good.yaml"]),
        ("'plans/with space/*.yaml' plans", ["plans/with space/good.yaml", "plans"]),
        ("plans/[b].yaml", ["plans/[b].yaml"]),  # a file's own name comes before what it would match
        ("plans/none-*.yaml", ["plans/none-*.yaml"]),  # which hipplan says is not there
    ],
)
def test_the_action_expands_patterns(files: str, checked: list[str], checkout: Path) -> None:
    (checkout / "plans" / "b.yaml").write_text(GOOD)
    (checkout / "plans" / "[b].yaml").write_text(GOOD)
    (checkout / "bin" / "hipplan").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    done = check(checkout, files=files)

    assert done.stdout.splitlines() == ["validate", "--format", "github", "--", *checked]


def test_the_action_installs_into_an_environment_of_its_own(checkout: Path) -> None:
    action = Action(checkout, {})
    place = action.run(step("Choose the folder and the key of the cache"))
    done = action.run(step("Install hipplan"))
    checked = action.run(step("Check"))

    assert (place.returncode, done.returncode, checked.returncode) == (0, 0, 0), place.stderr + done.stderr
    assert done.stdout == f"pure=1 -m pip install --quiet {ROOT}\n"
    assert action.known["steps.place.outputs.key"].startswith("hipplan-Linux-X64-")


def test_the_action_caches_what_it_installs(checkout: Path) -> None:
    steps = ACTION["runs"]["steps"]
    names = [one["name"] for one in steps]
    cache = step("Take hipplan from the cache")
    keys = set()
    for _ in range(2):
        action = Action(checkout, {})
        action.run(step("Choose the folder and the key of the cache"))
        keys.add(action.filled(cache["with"]["key"]))

    assert len(keys) == 1
    assert action.filled(cache["with"]["path"]) == str(checkout / "temp" / "hipplan")
    assert cache["uses"].startswith("actions/cache@v")
    assert step("Install hipplan")["if"] == f"steps.{cache['id']}.outputs.cache-hit != 'true'"
    assert names.index("Take hipplan from the cache") < names.index("Install hipplan") < names.index("Check")


def test_the_action_agrees_with_githubs_schema() -> None:
    pytest.importorskip("check_jsonschema")
    line = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions"]
    done = subprocess.run([*line, str(ROOT / "action.yml")], capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stdout


def test_the_hooks_run_the_command(checkout: Path) -> None:
    """Without pre-commit: its entry, with the names of all YAML files behind it."""
    (checkout / "workflow.yaml").write_text(WORKFLOW)
    for hook in HOOKS:
        line = [*hook["entry"].split(), "plans/good.yaml", "plans/with space/good.yaml", "workflow.yaml"]
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=600, cwd=checkout, env=environment(checkout)
        )

        assert done.returncode == 0, done.stderr
        assert (checkout / "workflow.yaml").read_text() == WORKFLOW


@pytest.mark.parametrize("hook", ["hipplan-validate-system", "hipplan-validate"])
def test_pre_commit_runs_the_hook(hook: str, checkout: Path) -> None:
    """The second installs hipplan from its sources: on a PATH without a compiler."""
    pytest.importorskip("pre_commit")
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for tool in Path("/usr/bin").iterdir():
        if not COMPILER.search(tool.name):
            (checkout / "bin" / tool.name).symlink_to(tool)
    settings = {"PRE_COMMIT_HOME": str(checkout / "cache"), "GIT_CONFIG_GLOBAL": "/dev/null"}
    more = {name: value for name, value in os.environ.items() if name not in ("CXX", "VIRTUAL_ENV")} | settings
    more["PATH"] = str(checkout / "bin")

    def run(*line: str, cwd: Path = checkout) -> subprocess.CompletedProcess[str]:
        return subprocess.run(line, capture_output=True, text=True, timeout=600, cwd=cwd, env=more)

    hooks = checkout / "hooks"  # a repository as pre-commit clones it
    hooks.mkdir()
    for name in (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, hooks)
    shutil.copytree(ROOT / "hipplan", hooks / "hipplan", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for repository in (hooks, checkout):
        run("git", "init", "-q", cwd=repository)
        run("git", "add", "." if repository == hooks else "plans", cwd=repository)
        run("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x", cwd=repository)
    head = run("git", "rev-parse", "HEAD", cwd=hooks).stdout.strip()
    config = {"repos": [{"repo": str(hooks), "rev": head,
                         "hooks": [{"id": hook, "args": ["--machine", "sim-2"]}]}]}  # fmt: skip
    (checkout / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    good = run(sys.executable, "-m", "pre_commit", "run", "--all-files")
    (checkout / "plans" / "good.yaml").write_text(INVALID)
    bad = run(sys.executable, "-m", "pre_commit", "run", "--all-files")

    assert good.returncode == 0, good.stdout + good.stderr
    assert bad.returncode == 1
    assert "plans/good.yaml:2:21: error[HP104]" in bad.stdout
