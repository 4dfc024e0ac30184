"""Whatever is thrown at the command: a sentence and exit 2 or 3, never a traceback, in bounded time.

In this process, without a driver: `validate` with and without a machine, `fmt`, and the verbs that take words.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hipplan.cli.main import VERBS, run
from hipplan.errors import PlanError, ProfileError
from hipplan.files.tensorfiles import FileProblem, open_file
from hipplan.language.checkpoints import entries_of
from hipplan.language.loader import load
from hipplan.machines.profiles import load_machine, machine_names
from tests.conftest import PACKAGE, ROOT, WHOLE

PLANS = sorted((ROOT / "plans").rglob("*.yaml"))
PROFILES = [PACKAGE / "machines" / f"{name}.yaml" for name in machine_names()]
anything = settings(max_examples=150 if WHOLE else 60)


def outcome_of(*arguments: str) -> tuple[int, str]:
    """Exit code and everything said."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(list(arguments))
    return code, out.getvalue()


def fine(*arguments: str) -> None:
    """Good, or a diagnostic: no other end."""
    code, answer = outcome_of(*arguments)

    assert code in (0, 2, 3, 6), answer
    assert code in (0, 6) or "error" in answer
    assert "Traceback" not in answer


BUFFER = "hipplan: 1\nbuffers: {b: {kind: device, size: %s}}\n"
MANAGED = "hipplan: 1\nrequires: {gpu: %s}\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"hipplan: \xff1\n", "HP002]: byte 9 (0xff) is not UTF-8"),
        ("hipplan: 1\n".encode("utf-16"), "this looks like UTF-16; save it as UTF-8"),
        (b"hipplan: 1\nname: a\xef\xbb\xbfb\n", "HP003]: the character U+FEFF is not allowed"),
        (b"hipplan: 1\nname: \0\n", "HP003]: the character NUL is not allowed in YAML"),
        (b"hipplan: 1\nbuffers:\n\tb: {}\n", "indent with spaces: YAML does not allow tabs there"),
        (b"hipplan: 1\nname: a\nname: b\n", "HP005]: the key 'name' appears twice"),
        (b"hipplan: 1\nbuffers: {<<: {}}\n", "HP007]: `<<` is a merge key of YAML 1.1"),
        (
            b"hipplan: 1\nname: !!python/object:os.system x\n",
            "HP006]: the tag !!python/object:os.system is not allowed",
        ),
        (b"hipplan: 1\nname: !!binary aGk=\n", "HP006]: the tag !!binary is not allowed"),
        (b"hipplan: 1\nvars: &a {b: *a}\n", "HP008]: this anchor contains an alias of itself"),
        ((BUFFER % ("9" * 10_000)).encode(), "HP012]: a number with 10000 digits"),
        ((BUFFER % ("'" + "9" * 10_000 + "'")).encode(), "HP013]: "),
        ((BUFFER % 2**64).encode(), "HP013]: this number is 2^64 bytes or more"),
        ((BUFFER % "16777216TiB").encode(), "HP013]: 16777216TiB is 2^64 bytes or more"),
        ((BUFFER % "-1").encode(), "HP013]: -1 is negative"),
        ((BUFFER % "0").encode(), "HP105]: a size of 0 bytes"),
        ((BUFFER % ".nan").encode(), "HP103]: expected a byte size, not a fraction"),
        ((BUFFER % ".inf").encode(), "HP103]: expected a byte size, not a fraction"),
        ((BUFFER % "1.5").encode(), "HP103]: expected a byte size, not a fraction"),
        ((BUFFER % "true").encode(), "HP103]: expected a byte size, not true or false"),
        ((BUFFER % "").encode(), "HP103]: expected a byte size, not nothing"),
        ((BUFFER % "1, count: true").encode(), "HP103]: 'count' must be an integer, not true or false"),
        ((BUFFER % "1, count: 1e3").encode(), "HP103]: 'count' must be an integer, not a fraction"),
        ((BUFFER % "1, count: 99999999999999999999").encode(), "HP023]: 'b' asks for 99,999,999,999,999,999,999"),
        (b"hipplan: 1\nregions: {r: {size: 1MiB, spread: null}}\n", "HP104]: 'spread' cannot be null"),
        (b"hipplan: 1\nregions: {r: {size: 1MiB, spread: true}}\n", "HP104]: 'spread' cannot be true"),
        (b"hipplan: ~\n", "HP108]: this hipplan reads version 1 of plans, not null"),
        ((MANAGED % "yes").encode(), "in YAML 1.2 the booleans are true and false"),
        ((MANAGED % "1").encode(), "HP103]: 'gpu' must be true or false, not an integer"),
        (b"hipplan: true\n", "HP108]: this hipplan reads version 1 of plans, not true"),
        (b'hipplan: "1"\n', 'HP108]: this hipplan reads version 1 of plans, not "1"'),
        (b"hipplan: null\n", "HP108]: this hipplan reads version 1 of plans, not null"),
        (b"hipplan: 1\nbuffers: {b: {kind: device, size: 1ZiB}}\n", "hint: units are KiB MiB GiB TiB PiB (powers"),
        (b"hipplan: 1.0\n", "HP108]: this hipplan reads version 1 of plans, not 1.0"),
        (b"- hipplan: 1\n", "HP103]: the document must be a mapping, not a list"),
        (b"hipplan\n", "HP103]: the document must be a mapping, not text"),
        (b"", "HP010]: "),
        (b"1: 2\n", "HP011]: the key 1 is read as int"),
    ],
    ids=repr,
)
def test_each_kind_of_bad_input_has_its_sentence(text: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_bytes(text)
    code, answer = outcome_of("validate", str(tmp_path / "plan.yaml"))

    assert code == 2
    assert sentence in answer


@pytest.mark.parametrize(
    ("text", "name"),
    [("no", "no"), ("NO", "NO"), ("on", "on"), ("y", "y"), ("012abc", "012abc"), ("10:00", "10:00"), ("1_0", "1_0")],
)
def test_norway_is_a_name(text: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(f"hipplan: 1\nname: {text}\n")
    from hipplan.language.loader import load

    assert load(tmp_path / "plan.yaml").plan.name == name


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b""])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_a_byte_order_mark_and_any_line_ending_are_no_mistake(start: bytes, ending: bytes, tmp_path: Path) -> None:
    text = b"hipplan: 1\nbuffers:\n  b: {kind: device, size: 1MiB}\n"
    (tmp_path / "plan.yaml").write_bytes(start + text.replace(b"\n", ending))

    assert outcome_of("validate", str(tmp_path / "plan.yaml"))[0] == 0


# Bytes

ATOMS = st.sampled_from(
    [
        b"hipplan: 1\n",
        b"buffers:",
        b"  b:",
        b" {kind: device, size: ",
        b"1MiB",
        b"}",
        b"\n",
        b"- ",
        b"$(",
        b"each: ",
        b"&a ",
        b"*a",
        b"|",
        b">",
        b"\t",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\0",
        b"\r",
        b"#",
        b"'",
        b'"',
        b"?",
        b"!",
        b"%YAML 1.1\n",
        b"---\n",
        b"[",
        b"]",
        b"<<: ",
        b"9" * 50,
        b".nan",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"include: plan.yaml\n",
    ]
)


@anything
@given(raw=st.binary(max_size=200) | st.lists(ATOMS | st.binary(max_size=3), max_size=30).map(b"".join))
def test_bytes(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_bytes(raw)

    fine("validate", str(tmp_path / "plan.yaml"), "--machine", "sim-2")
    fine("fmt", "--check", str(tmp_path / "plan.yaml"))


# Trees

KEYS = st.sampled_from(
    [
        "hipplan",
        "vars",
        "devices",
        "allocations",
        "reservations",
        "mappings",
        "buffers",
        "regions",
        "streams",
        "peers",
        "each",
        "include",
        "requires",
        "size",
        "count",
        "device",
        "kind",
        "access",
        "tensors",
        "advice",
        "range",
        "at",
        "gpu.0",
        "a",
        "$(i)",
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300_000),
    st.integers(2**62, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "1MiB",
            "1.5GiB",
            "gpu.0",
            "gpu.*",
            "host",
            "rw",
            "all",
            "device",
            "managed",
            "$(i)",
            "$(1 // 0)",
            "$(",
            "$(9 * 9 * 9)",
            "a",
            "auto",
            "bf16",
            "plan.yaml",
            "../x",
            "/dev/zero",
            "/dev/null",
        ]
    ),
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


@anything
@given(tree=st.dictionaries(KEYS, TREES, max_size=6))
def test_trees(tree: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"hipplan": 1} | tree))

    fine("validate", str(tmp_path / "plan.yaml"), "--machine", "mi300x-8")


# Good documents, changed

JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    2**64,
    1e300,
    float("nan"),
    "",
    "x",
    "1MiB",
    "host",
    "gpu.9",
    [],
    {},
    [{}],
    {"each": 3},
    "$(x)",
    "a" * 5000,
    [[]],
    {"size": 1},
    "0x10",
    "*",
    "\x85",
    "kv.*",
    250_001,
]


def mutated(document: Any, chance: random.Random) -> Any:
    """One to three values replaced, removed, moved or repeated."""
    document = copy.deepcopy(document)
    for _ in range(chance.randint(1, 3)):
        places = [
            (node, key) for node in _nodes(document) for key in (node if isinstance(node, dict) else range(len(node)))
        ]
        if not places:
            return document
        node, key = chance.choice(places)
        action = chance.randrange(4)
        if action == 0:
            node[key] = copy.deepcopy(chance.choice(JUNK))
        elif action == 1:
            del node[key]
        elif action == 2:
            other, there = chance.choice(places)
            if there in other or (isinstance(other, list) and there < len(other)):
                node[key] = copy.deepcopy(other[there])
        elif isinstance(node, dict):
            node[str(chance.choice(["size", "device", "count", "each", "kind", "x", "at", "$(x)", "access"]))] = (
                chance.choice(JUNK)
            )
    return document


def _nodes(document: Any) -> list[Any]:
    if not isinstance(document, (dict, list)):
        return []
    inner = document.values() if isinstance(document, dict) else document
    return [document, *(node for item in inner for node in _nodes(item))]


@pytest.mark.in_parts
@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.stem))
def test_mutated_plans(path: Path, tmp_path: Path) -> None:
    good = yaml.safe_load(path.read_text())
    for seed in range(30 if WHOLE else 10):  # of thousands of objects
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump(mutated(good, random.Random(seed)), allow_unicode=True))
        fine("validate", str(tmp_path / "plan.yaml"), "--machine", "sim-2")


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: str(path.stem))
def test_mutated_profiles(path: Path, tmp_path: Path) -> None:
    good = yaml.safe_load(path.read_text())
    plan = str(ROOT / "plans" / "quickstart.yaml")
    for seed in range(20 if WHOLE else 7):
        (tmp_path / "box.yaml").write_text(yaml.safe_dump(mutated(good, random.Random(seed))))
        code, answer = outcome_of("validate", plan, "--machine", str(tmp_path / "box.yaml"))
        assert code in (0, 2, 3), answer
        fine("machine", "--diff", str(tmp_path / "box.yaml"), path.stem)


# Variables, arguments, the environment

HOSTILE = [
    "",
    "=",
    "x",
    "x=",
    "=1",
    "n",
    "n=",
    "n=-1",
    "n=" + "9" * 5000,
    "n=$(n)",
    "n=1e9",
    "n=\0",
    "n=true",
    "n=\udcff",
    "\udcff=1",
]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_variables_on_the_command_line(value: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("hipplan: 1\nvars: {n: 2}\nallocations: {a: {size: 1MiB, count: $(n)}}\n")

    fine("validate", str(plan), "--var", value)


@pytest.mark.parametrize(
    "variables",
    [
        "{n: [1]}",
        "{n: {}}",
        "{n: null}",
        "{n: 1.5}",
        "{1n: 1}",
        "{n: $(n)}",
        "{a: $(b), b: $(a)}",
        "[1]",
        "x",
        "{n: " + "9" * 30 + "}",
        "{n: $(2 ** 99)}",
        "{n: '$(9999999999999999999 * 9999999999999999999)'}",
        "{n: '" + "$(" * 2000 + "'}",
        "{n: '$(" + "(" * 500 + "1" + ")" * 500 + ")'}",
        "{n: '$(" + "1+" * 3000 + "1)'}",
    ],
)
def test_hostile_variables_of_a_plan(variables: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        f"hipplan: 1\nvars: {variables}\nbuffers: {{b: {{kind: device, size: $(n)}}}}\n"
    )
    code, answer = outcome_of("validate", str(tmp_path / "plan.yaml"))

    assert code == 2
    assert "error[HP" in answer


WORDS = st.sampled_from(
    [
        *VERBS,
        "list",
        "show",
        "--machine",
        "--var",
        "--format",
        "json",
        "--diff",
        "--check",
        "--",
        "-",
        "--help",
        "n=1",
        "sim-2",
        "plan",
        "HP101",
        "x" * 300,
        "\udcff",
        "",
        "\n",
        "--runtime",
        "-h",
        "/dev/null",
        "--include-anywhere",
    ]
)
QUIET = [verb for verb in VERBS if verb in ("validate", "fmt", "explain", "schema")]


@anything
@given(verb=st.sampled_from(QUIET), words=st.lists(WORDS | st.text(max_size=5), max_size=6))
def test_any_arguments(verb: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"hipplan: 1\n")))

    fine(verb, *words)


@pytest.mark.parametrize(
    "verb", ["", "-", "--", "\udcff", "valid", "__init__", "main", "../main", "arguments", "--version=1"]
)
def test_a_verb_that_is_invalid(verb: str) -> None:
    code, answer = outcome_of(verb)

    assert code == 2
    assert answer.startswith("hipplan: error: there is no ")


# Time


@pytest.mark.in_parts
@pytest.mark.parametrize(
    "text",
    [
        "hipplan: 1\nallocations: {a: {each: {a: 500, b: 500, c: 500}, size: 1}}\n",
        "hipplan: 1\nallocations: {a: {count: 250000, size: 1}, b: {count: 250000, size: 1}}\n",
        "hipplan: 1\nallocations:\n" + "".join(f"  a{i}: {{size: 0, devise: x}}\n" for i in range(5000)),
        "hipplan: 1\nreservations:\n  r:\n    mappings:\n" + "      - {allocation: nobody}\n" * 5000,
        "hipplan: 1\nreservations: {r: {access: {"
        + ", ".join(f"gpu.{i}.*: rw" for i in range(5000))
        + "}, size: 1}}\n",
        "hipplan: 1\n" + "".join(f"k{i}: 1\n" for i in range(20_000)),
        "hipplan: 1\nallocations: {a: {size: 1, count: 100000}}\nreservations:\n  r: {mappings: ["
        + "{allocation: a.*}, " * 20
        + "]}\n",
        "hipplan: 1\ninclude: [" + ", ".join(f"p{i}.yaml" for i in range(5000)) + "]\n",
        "hipplan: 1\ndevices: {gpu: {count: 1000}}\npeers: all\nbuffers: {b: {kind: device, size: 1}}\n",
    ],
    ids=["product", "counts", "wrong things", "dangling", "patterns", "unknown keys", "spread", "includes", "peers"],
)
def test_what_is_made_to_take_long_does_not(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(text)
    start = time.process_time()
    code, answer = outcome_of("validate", str(tmp_path / "plan.yaml"), "--machine", "mi300x-8")

    assert code in (2, 3)
    assert "error[HP" in answer
    assert time.process_time() - start < 30


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such file here")
def test_endless_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "unused")  # not opened: it would wait for a writer for ever
    (tmp_path / "plan.yaml").write_text("hipplan: 1\ninclude: zero.yaml\n")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")

    assert outcome_of("validate", "/dev/zero")[0] == 2
    assert outcome_of("validate", str(tmp_path / "plan.yaml"), "--include-anywhere")[0] == 2


HUGE = 10**5000
"""Python refuses to print it."""


@pytest.mark.parametrize(
    "data",
    [
        {"name": HUGE},
        {"vars": {"n": HUGE}, "name": "x$(n)"},
        {"vars": {"n": [HUGE]}},
        {"buffers": {"b": {"kind": "device", "size": HUGE}}},
        {"buffers": {"b": {"kind": "device", "size": 1, "count": HUGE}}},
        {"buffers": {"b": {"kind": HUGE, "size": 1}}},
        {"buffers": {"b": {"each": HUGE, "kind": "device", "size": 1}}},
        {"buffers": {"b": {"each": {"from": HUGE, "count": 2}, "kind": "device", "size": 1}}},
        {"buffers": {HUGE: {"kind": "device", "size": 1}}},
        {"reservations": {"r": {"size": 1, "address": HUGE}}},
        {"regions": {"r": {"tensors": {"t": {"dtype": "f32", "shape": [HUGE, HUGE]}}}}},
        {"regions": {"r": {"tensors": {"t": {"dtype": "f32", "shape": [2**62] * 32}}}}},
        {"regions": {"r": {"size": "1MiB", "tensors": {"t": {"dtype": "f32", "shape": [2**62] * 31 + [-1]}}}}},
        {"hipplan": HUGE},
    ],
    ids=lambda data: next(iter(data)),
)
def test_a_number_that_cannot_be_printed_is_a_mistake_with_a_place(data: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as caught:
        load({"hipplan": 1, **data})
    assert len(str(caught.value)) < 5000
    assert len(json.dumps([diagnostic.to_json() for diagnostic in caught.value.diagnostics])) < 10_000


def test_a_variable_from_outside_that_cannot_be_printed_is_one_too() -> None:
    with pytest.raises(PlanError, match=r"HP012.*A number of about 5,001 digits"):
        load({"hipplan": 1, "vars": {"n": 1}, "name": "x$(n)"}, {"n": HUGE})


def test_the_dimensions_of_an_array_in_a_file_are_no_traceback(tmp_path: Path) -> None:
    header = str({"descr": "<f4", "fortran_order": False, "shape": (2**63 - 1,) * 300}).encode()
    array = tmp_path / "a.npy"
    array.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)

    with pytest.raises(FileProblem, match=r"a\.npy is damaged") as caught:
        open_file(str(array))
    assert caught.value.code == "HP422"


@pytest.mark.parametrize("key", ["hip_version: '" + "9" * 5000 + ".1'", "host_memory: " + "9" * 5000])
def test_a_profile_has_no_number_that_cannot_be_printed(key: str, tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text(f"name: box\ndevices: []\n{key}\n")

    with pytest.raises(ProfileError) as caught:
        load_machine(tmp_path / "box.yaml").version  # noqa: B018
    assert len(str(caught.value)) < 5000


def test_a_device_that_only_a_wrong_object_names_is_no_second_mistake() -> None:
    weights = {"size": "x", "device": "gpu.3"}
    model = {"size": 0, "access": {"gpu.5": "rw"}, "mappings": [{"allocation": "weights"}]}

    with pytest.raises(PlanError) as caught:
        load({"hipplan": 1, "allocations": {"weights": weights}, "reservations": {"model": model}})
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP013", "HP105"]


@pytest.mark.parametrize("wrong", [3, "x", None, [], {}, [1], {"a": 1}, {"gpu.0": []}, [{"a": 1}], [[]]])
def test_names_are_looked_up_in_what_has_any_other_type(wrong: Any) -> None:
    mapping = {"allocation": wrong, "at": "x", "access": wrong}
    nouns: dict[str, Any] = {
        "allocations": {"a": {"device": wrong, "size": "x"}, "b": wrong},
        "reservations": {"r": {"access": wrong, "mappings": [mapping, wrong]}, "s": {"mappings": wrong, "size": "x"}},
        "buffers": {"t": {"kind": "managed", "size": "x", "advice": wrong, "prefetch": [wrong], "attach_to": wrong}},
        "regions": {"c": {"devices": wrong, "size": "x", "access": wrong}},
        "streams": {"copy": {"device": wrong}},
        "peers": [wrong],
    }

    with pytest.raises(PlanError, match=r"HP0|HP1"):
        load({"hipplan": 1, **nouns})


def test_a_checkpoint_whose_name_is_too_long_is_no_traceback() -> None:
    with pytest.raises(PlanError, match=r"HP422.* is not a file"):
        entries_of("a" * 300)
