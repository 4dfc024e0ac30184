"""hipplan fmt: the same data, the same comments, one way to write them; and once is enough."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hipplan.errors import PlanError
from hipplan.language import canonical as canonical_module
from hipplan.language.canonical import canonical
from hipplan.language.model.places import KindOfPlace
from hipplan.language.source import load_yaml
from tests.conftest import ROOT, WHOLE

PLANS = sorted((ROOT / "plans").rglob("*.yaml"))


def formatted(text: str) -> str:
    return canonical(load_yaml(io.StringIO(text), "p"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_plans_of_this_repository_are_canonical(path: Path) -> None:
    assert canonical(load_yaml(path)) == path.read_text()


@pytest.mark.parametrize(
    ("written", "canonical_text"),
    [
        ("{hipplan: 1, name: 'x'}", "hipplan: 1\nname: x\n"),
        ("---\r\nname: x\r\nhipplan: 1\r\n", "hipplan: 1\nname: x\n"),
        ("hipplan: 1\n\n\n\nname: x\n\n\n", "hipplan: 1\n\nname: x\n"),
        ("hipplan: 1\nbuffers:\n    b:  {size:  1, 'kind' : \"device\"}",
         "hipplan: 1\nbuffers:\n  b: {kind: device, size: 1}\n"),
        ("buffers:\n  b:\n    size: 1\n    kind: device\nhipplan: 1",
         "hipplan: 1\nbuffers:\n  b:\n    kind: device\n    size: 1\n"),
        ("hipplan: 1\npeers:\n- device: a\n  peer: b\n", "hipplan: 1\npeers:\n  - device: a\n    peer: b\n"),
        ("hipplan: 1\nname: \"7.2\"\n", 'hipplan: 1\nname: "7.2"\n'),
        ("hipplan: 1\nname: 'a: b'\n", 'hipplan: 1\nname: "a: b"\n'),
        ("hipplan: 1\nname: 'no'\n", "hipplan: 1\nname: no\n"),
        ("hipplan: 1\nname: 'true'\n", 'hipplan: 1\nname: "true"\n'),
        ("hipplan: 1\nname: two\n  lines\n", "hipplan: 1\nname: two lines\n"),
        ("hipplan: 1\nname: '...'\n", 'hipplan: 1\nname: "..."\n'),
        ("hipplan: 1\nx: [\n1,\n2,\n]\n", "hipplan: 1\nx: [1, 2]\n"),
        ("hipplan: 1\ndescription: |\n    a\n      b\nname: x\n", "hipplan: 1\nname: x\ndescription: |\n  a\n    b\n"),
        ("b: 2\na: 1\nhipplan: 1\n", "hipplan: 1\nb: 2\na: 1\n"),
        ("hipplan: 1\nx: {}\ny: []\nz:\n", "hipplan: 1\nx: {}\ny: []\nz:\n"),
    ],
)  # fmt: skip
def test_there_is_one_way_to_write_it(written: str, canonical_text: str) -> None:
    assert formatted(written) == canonical_text
    assert formatted(canonical_text) == canonical_text


def test_comments_stay_where_they_belong() -> None:
    written = """\
# what this is


# and who made it

buffers:  # all of them
    b: {size: 1, kind: device}   # the first
    # before the second
    c:
      # its size
      size: 2   # bytes
      kind: device
      # after all of c
    # after all buffers

# about the version
hipplan: 1
# the end
"""
    assert (
        formatted(written)
        == """\
# what this is

# and who made it

# about the version
hipplan: 1

buffers:  # all of them
  b: {kind: device, size: 1}     # the first
  # before the second
  c:
    kind: device
    # its size
    size: 2     # bytes
    # after all of c
  # after all buffers
# the end
"""
    )


@pytest.mark.parametrize(
    ("written", "canonical_text"),
    [
        ("x:\n    # a\n  a: 1\n  b: 2\ny: 3\n", "x:\n  # a\n  a: 1\n  b: 2\ny: 3\n"),  # deeper than what it is about
        ("x:\n  a: 1\n     # b\n  b: 2\ny: 3\n", "x:\n  a: 1\n  # b\n  b: 2\ny: 3\n"),
        ("x:\n  a:\n      c: 1\n    # b\n  b: 2\n", "x:\n  a:\n    c: 1\n  # b\n  b: 2\n"),  # between the two
        ("x:\n  a: 1\n    # end of x\ny: 3\n", "x:\n  a: 1\n  # end of x\ny: 3\n"),
        ("x:\n  - a: 1\n      # b\n    b: 2\n  - 3\n", "x:\n  - a: 1\n    # b\n    b: 2\n  - 3\n"),
        ("x:\n      # 1st\n  - 1\n    # 2nd\n  - 2\ny: 3\n", "x:\n  # 1st\n  - 1\n  # 2nd\n  - 2\ny: 3\n"),
        ("x:\n    # none yet\ny: 1\n", "x:\n  # none yet\ny: 1\n"),  # of a block that is nothing but a comment
        ("x:\n-\n  # none\n# b\n- 1\ny: 1\n", "x:\n  -\n    # none\n  # b\n  - 1\ny: 1\n"),
        ("x: {  # open\n  a: 1\n}  # close\ny: 1\n", "x:    # open\n  a: 1\n  # close\ny: 1\n"),
        ("x: {a: 1,\n# end of x\n}\ny: 1\n", "x:\n  a: 1\n  # end of x\ny: 1\n"),
        ("x: [\n  # empty\n]  # close\ny: 1\n", "# empty\nx: []  # close\ny: 1\n"),
        ("x:\n  # of x\n  {a: 1}\ny: 1\n", "# of x\nx: {a: 1}\ny: 1\n"),
        ("? x\n# of x\n: [\n1, 2]\ny: 1\n", "# of x\nx: [1, 2]\ny: 1\n"),
        ("x:\n  # about 1\n  1\ny: 1\n", "# about 1\nx: 1\ny: 1\n"),
        ("x: # one\n  1 # two\ny: 1\n", "# two\nx: 1  # one\ny: 1\n"),
    ],
)
def test_a_comment_stays_between_its_neighbours(written: str, canonical_text: str) -> None:
    assert formatted("hipplan: 1\n" + written) == "hipplan: 1\n" + canonical_text


def test_what_holds_a_comment_or_is_too_long_goes_on_lines_of_its_own() -> None:
    long = ", ".join(f"gpu.{i}: rw" for i in range(16))
    text = formatted(f"hipplan: 1\nreservations:\n  r: {{size: 1, # so small\n access: {{{long}}}}}\n")

    assert text.startswith("hipplan: 1\nreservations:\n  r:\n    size: 1    # so small\n")
    assert "    access:\n      gpu.0: rw\n" in text


def test_items_of_a_long_line_get_no_empty_lines_between_them() -> None:
    buffers = [f"b{number}: {{kind: device, size: 4KiB}}" for number in range(5)]
    text = formatted("hipplan: 1\n\nbuffers: {" + ", ".join(buffers) + "}\n")

    assert text == "\n".join(["hipplan: 1", "", "buffers:", *(f"  {line}" for line in buffers), ""])


def test_a_comment_below_a_line_is_not_put_into_it() -> None:
    text = "hipplan: 1\nx:\n  y: {a: 1}\n           # deep\nz: 1\n"

    assert formatted(text) == "hipplan: 1\nx:\n  y: {a: 1}\n  # deep\nz: 1\n"


def test_what_stands_at_a_kind_of_place_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans for models have tens of thousands of tensors."""
    asked: list[object] = []
    fields = KindOfPlace.fields
    monkeypatch.setattr(KindOfPlace, "fields", lambda place, kind: asked.append(place) or fields(place, kind))
    canonical_module._numbered.cache_clear()
    tensors = "".join(f"      t{number}: {{shape: [{number + 1}], dtype: f32}}\n" for number in range(100))
    text = formatted(f"hipplan: 1\nregions:\n  r:\n    device: gpu.0\n    tensors:\n{tensors}")

    assert "      t99: {dtype: f32, shape: [100]}\n" in text
    assert len(asked) == len({*asked}) == 2  # a region, a tensor


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("hipplan: 1\na: &x 1\nb: *x\n", 3, 4),
        ("hipplan: 1\na: &x [1]\n", 2, 4),
        ("%YAML 1.2\n---\nhipplan: 1\n", 1, 1),
        ("hipplan: 1\ndescription: |2\n    a\n", 2, 14),
        ("hipplan: 1\ndescription: | # c\n    a\n", 2, 14),
    ],
)
def test_what_cannot_be_kept_is_reported_and_left_alone(text: str, line: int, column: int) -> None:
    with pytest.raises(PlanError) as caught:
        formatted(text)
    (diagnostic,) = caught.value.diagnostics

    assert (diagnostic.code, diagnostic.span and (diagnostic.span.line, diagnostic.span.column)) == (
        "HP026",
        (line, column),
    )


def test_a_plan_with_a_key_twice_is_not_formatted() -> None:
    with pytest.raises(PlanError, match="HP005"):
        formatted("hipplan: 1\na: 1\na: 2\n")


WORDS = st.sampled_from(
    ["a", "b b", "gpu.0", "kv.*", "$(n * 2)", "no", "1", "1.5GiB", "", "x: y", "#", "- a", "é", "~"]
)
SCALARS = st.one_of(WORDS, st.integers(), st.booleans(), st.none(), st.text(max_size=8))
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=3)
)


@st.composite
def plan_texts(draw: st.DrawFn) -> str:
    """Any tree, or a plan of the repository, written in one of PyYAML's ways, with comments strewn in."""
    tree: Any = draw(st.dictionaries(WORDS, TREES, max_size=4))
    if draw(st.booleans()):
        tree = yaml.safe_load(draw(st.sampled_from(PLANS)).read_text())
    text = yaml.safe_dump(
        {"hipplan": 1} | tree,
        default_flow_style=draw(st.sampled_from([True, False, None])),
        indent=draw(st.integers(2, 6)),
        width=draw(st.sampled_from([20, 80, 200])),
        default_style=draw(st.sampled_from([None, None, '"', "'", "|"])),
        allow_unicode=draw(st.booleans()),
        sort_keys=draw(st.booleans()),
    )
    lines = text.split("\n")
    for number, comment in draw(st.dictionaries(st.integers(0, len(lines) - 1), st.integers(0, 9), max_size=4)).items():
        lines[number] += f" # behind {comment}" if comment % 2 else "\n" + " " * comment + f"# own {number}."
    for number in draw(st.sets(st.integers(0, len(lines) - 1), max_size=3)):
        lines[number] += "\n"
    return "\n".join(lines)


def places_of_comments(text: str) -> tuple[list[str], dict[str, int]]:
    """What stands in the text, and how much of it before each comment on a line of its own."""
    tokens = [token for token in yaml.scan(text) if isinstance(token, yaml.ScalarToken)]
    places = {}
    for match in re.finditer(r"^ *(# own \d+\.)$", text, re.MULTILINE):
        if not any(token.start_mark.index < match.start(1) < token.end_mark.index for token in tokens):
            places[match[1]] = sum(token.start_mark.index < match.start(1) for token in tokens)
    return [str(token.value) for token in tokens], places


@settings(max_examples=300 if WHOLE else 100)
@given(plan_texts())
def test_formatting_keeps_data_and_comments_and_changes_nothing_the_second_time(text: str) -> None:
    try:
        source = load_yaml(io.StringIO(text), "p")
    except PlanError:
        return  # a comment fell into a text: it is no plan any more
    try:
        result = canonical(source)
    except PlanError as error:
        assert {diagnostic.code for diagnostic in error.diagnostics} == {"HP026"}
        assert re.search(r"[&*%|>]", text) or "\\" in text, text  # never without a reason in the text
        return
    again = load_yaml(io.StringIO(result), "p")

    assert again.data == source.data
    assert canonical(again) == result
    (names, places), (ordered, moved) = places_of_comments(text), places_of_comments(result)
    if names == ordered:  # above its key, if it stood between that and a value
        assert moved.keys() == places.keys() and all(place - moved[one] in (0, 1) for one, place in places.items())
