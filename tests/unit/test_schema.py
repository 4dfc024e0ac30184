"""The published schemas: current, valid, and in agreement with the models up to what a schema cannot say."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hipplan.errors import HipplanError
from hipplan.experiment.schema import experiment_schema
from hipplan.language.loader import load
from hipplan.machines.profiles import machine_names
from hipplan.show.schema import machine_schema, plan_schema
from tests.conftest import PACKAGE, WHOLE

jsonschema = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[2]
PLANS = sorted((ROOT / "plans").glob("*.yaml"))

# What the models refuse and a schema cannot say: text that is no size, names and numbers that must fit each other,
# keys that must go together, versions and profiles, and what stands in other files.
BEYOND_A_SCHEMA = {
    "HP013", "HP105", "HP106", "HP107", "HP109", "HP211",
    "HP020", "HP021", "HP022", "HP023", "HP024", "HP025",
    "HP201", "HP202", "HP203", "HP204", "HP205", "HP206", "HP207", "HP208", "HP209", "HP212", "HP213", "HP214", "HP421",
}  # fmt: skip


SCHEMA = plan_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def accepts(document: Any) -> bool:
    return bool(VALIDATOR.is_valid(document))


def test_the_generated_files_are_current() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


def test_the_schemas_are_schemas() -> None:
    for schema in (SCHEMA, machine_schema(), experiment_schema()):
        jsonschema.Draft202012Validator.check_schema(schema)


def test_each_schema_has_a_name_of_its_own() -> None:
    names = [schema["$id"] for schema in (SCHEMA, machine_schema(), experiment_schema())]

    assert names == ["urn:hipplan:plan:1", "urn:hipplan:machine:1", "urn:hipplan:experiment:1"]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.stem))
def test_every_plan_agrees_with_the_schema(path: Path) -> None:
    assert accepts(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("name", machine_names())
def test_every_profile_agrees_with_the_schema(name: str) -> None:
    validator = jsonschema.Draft202012Validator(machine_schema())

    assert validator.is_valid(yaml.safe_load((PACKAGE / "machines" / f"{name}.yaml").read_text()))


@pytest.mark.parametrize(
    "text",
    [
        "vars: {n: 2}\nallocations: {a: {each: gpu, size: $(n * 1MiB), count: $(n), device: $(each)}}",
        "allocations: {a$(l): {each: {l: [1, 2]}, size: 1}}",
        "reservations: {r: {each: {from: 1, count: 2}, size: 1, access: {$(each): rw}, mappings: []}}",
        "reservations: {r: {mappings: [{each: 3, allocation: a, at: $(each)}]}}",
        "include: [a.yaml]\nrequires: {gpu: $(flag)}\npeers: [{each: gpu, device: $(each), peer: x}]",
        "vars: {k: device}\nbuffers: {b: {kind: $(k), size: 1MiB}}",
        "buffers: {b: {kind: managed, size: 1, attach: $(x), advice: [{advise: $(y)}]}}",
    ],
)
def test_the_schema_knows_what_is_written_before_expansion(text: str) -> None:
    assert accepts(yaml.safe_load(f"hipplan: 1\n{text}"))


@pytest.mark.parametrize(
    "text",
    [
        "hipplan: 2",
        "name: x",
        "hipplan: 1\nallocatons: {}",
        "hipplan: 1\nallocations: {a: {size: 64Mb}}",
        "hipplan: 1\nallocations: {a: {size: 0}}",
        "hipplan: 1\nallocations: {a b: {size: 1}}",
        "hipplan: 1\nbuffers: {b: {kind: devise, size: 1}}",
        "hipplan: 1\nbuffers: {b: {kind: pinned, size: 1, attach: host}}",
        "hipplan: 1\nreservations: {r: {size: 1, access: {gpu.0: w}}}",
        "hipplan: 1\nrequires: {gpu: 'yes'}",
        "hipplan: 1\nrequires: {each: 2}",
    ],
)
def test_the_schema_refuses_what_has_the_wrong_shape(text: str) -> None:
    assert not accepts(yaml.safe_load(text))


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 9), st.integers(2**63, 2**70), st.text(max_size=6),
    st.sampled_from(["2MiB", "1.5GiB", "64Mb", "gpu.0", "host", "all", "rw", [], {}, [{}], {"size": 1}]),
)  # fmt: skip


class Quoting(yaml.SafeDumper):
    """Quotes all text: of YAML 1.1, which PyYAML writes, 0E0 is text, and of 1.2 a number."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def as_text(plan: Any) -> str:
    return str(yaml.dump(plan, Dumper=Quoting))


def test_text_that_looks_like_a_number_stays_text() -> None:
    assert load(io.StringIO(as_text({"hipplan": 1, "name": "0E0"}))).plan.name == "0E0"


@st.composite
def changed(draw: st.DrawFn, plan: Any) -> Any:
    """The plan with one value, somewhere, replaced by something else, removed, or joined by another key."""
    plan = copy.deepcopy(plan)
    node = plan
    while True:
        key = draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or not node[key] or draw(st.integers(0, 3)) == 0:
            break
        node = node[key]
    action = draw(st.sampled_from(["replace", "remove", "add"]))
    if action == "remove":
        del node[key]
    elif action == "add" and isinstance(node, dict):
        node[draw(st.sampled_from(["size", "device", "count", "access", "name", "kind", "at", "x"]))] = draw(JUNK)
    else:
        node[key] = draw(JUNK)
    return plan


@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.stem))
@settings(max_examples=40 if WHOLE else 15)
@given(data=st.data())
def test_schema_and_models_agree_up_to_what_a_schema_cannot_say(path: Path, data: st.DataObject) -> None:
    plan = data.draw(changed(yaml.safe_load(path.read_text())))
    try:
        load(io.StringIO(as_text(plan)))
        codes = set()
    except HipplanError as error:
        codes = {diagnostic.code for diagnostic in error.diagnostics}

    if accepts(plan):  # and an expression may become something of another type
        assert codes <= BEYOND_A_SCHEMA | ({"HP103", "HP104"} if "$(" in str(plan) else set())
    else:
        assert codes


# Not each: what it repeats no time at all (each: []) hipplan never looks at, and the schema does.
NAMES = {
    *SCHEMA["properties"],
    *(key for definition in SCHEMA["$defs"].values() for key in definition.get("properties", ())),
} - {"each"}
KEYS = st.sampled_from(sorted(NAMES))
VALUES = st.one_of(
    JUNK, st.sampled_from(["device", "pinned", "managed", "registered", "read_mostly", "posix_fd", 1, "$(n)", "a.*"])
)
TREES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@settings(max_examples=300 if WHOLE else 100)
@given(tree=st.dictionaries(st.sampled_from([*SCHEMA["properties"]]), st.dictionaries(st.just("a"), TREES), max_size=3))
def test_schema_and_models_agree_on_any_tree(tree: dict[str, Any]) -> None:
    plan = {**tree, "hipplan": 1}
    try:
        load(io.StringIO(as_text(plan)))
        codes = set()
    except HipplanError as error:
        codes = {diagnostic.code for diagnostic in error.diagnostics}

    if accepts(plan):
        assert codes <= BEYOND_A_SCHEMA
    else:
        assert codes
