"""YAML 1.2, positions, and bad input of every kind: a diagnostic, at the place, in bounded time."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipplan.errors import Diagnostic, PlanError
from hipplan.language.source import load_yaml


def refused(text: str | bytes) -> list[Diagnostic]:
    with pytest.raises(PlanError) as raised:
        load_yaml(io.BytesIO(text if isinstance(text, bytes) else text.encode()), "p")
    return list(raised.value.diagnostics)


def place(diagnostic: Diagnostic) -> tuple[str, int, int]:
    assert diagnostic.span is not None
    return diagnostic.code, diagnostic.span.line, diagnostic.span.column


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("NO", "NO"),
        ("on", "on"),
        ("y", "y"),
        ("10:00", "10:00"),
        ("1_000", "1_000"),
        ("0", 0),
        ("-0", 0),
        ("0.5", 0.5),
        ("0e1", 0.0),
        ("0x0F", 15),
        ("012a", "012a"),
        ("'012'", "012"),
        ("0o14", 12),
        ("0x1F", 31),
        ("+3", 3),
        ("-3", -3),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("2001-01-01", "2001-01-01"),
        ("0b1", "0b1"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_resolve_as_yaml_1_2_does(written: str, value: object) -> None:
    data = load_yaml(f"a: {written}\n").data["a"]

    assert data == value
    assert type(data) is type(value)


def test_every_piece_knows_where_it_was_written() -> None:
    source = load_yaml("a:\n  b: [1, 22]\n  'ü': {x: y}\n", "p")

    def where(*path: object, key: bool = False) -> tuple[int, int, int]:
        span = source.span(path, key=key)  # type: ignore[arg-type]
        assert span is not None
        return span.line, span.column, span.end_column

    assert where("a", "b", 1) == (2, 10, 12)
    assert where("a", "b", key=True) == (2, 3, 4)
    assert where("a", "ü", "x") == (3, 12, 13)
    assert where("a", "missing", "deeper") == (1, 1, 2)
    assert str(source.span(("a", "b", 0))) == "p:2:7"


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_count_alike_with_every_line_ending(ending: str) -> None:
    span = load_yaml(f"a: 1{ending}b: 2{ending}c: 3{ending}").span(("c",))

    assert span is not None
    assert (span.line, span.column, span.text) == (3, 4, "c: 3")


def test_a_byte_order_mark_at_the_start_is_no_mistake_and_no_column() -> None:
    source = load_yaml(io.BytesIO(b"\xef\xbb\xbfa: 1\n"))

    assert source.data == {"a": 1}
    assert str(source.span(("a",))) == "<stream>:1:4"


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        (b"a: \xff\n", "HP002", 1, 4),
        (b"\xff\xfea\x00", "HP002", 1, 1),
        ("a: 1\nb: \0\n", "HP003", 2, 4),
        ("a: \x07\n", "HP003", 1, 4),
        ("a: 1\n\ufeffb: 1\n", "HP003", 2, 1),
        ("a: \ufffe\n", "HP003", 1, 4),
        ("a: 1\n\tb: 2\n", "HP004", 2, 1),
        ("\ta: 1\n", "HP004", 1, 1),
        ("x: 1\na: [1, 2\n", "HP004", 2, 4),
        ("a: 'x\n", "HP004", 1, 4),
        ("a: *x\n", "HP004", 1, 4),
        ("a: b: c\n", "HP004", 1, 5),
        ('a: {"x[0]": 1, y.0[12]: 2}\n', "HP004", 1, 19),
        ("%YAML 3.0\n---\na: 1\n", "HP004", 1, 1),
        ("x: 1\na: 1\na: 2\n<<: {}\n", "HP005", 3, 1),
        ("a: !!python/object:os.system x\n", "HP006", 1, 4),
        ("a: !!str x\n", "HP006", 1, 4),
        ("!!map {a: 1}\n", "HP006", 1, 1),
        ("a: {<<: {b: 1}}\n", "HP007", 1, 5),
        ("a: &a [*a]\n", "HP008", 1, 4),
        ("a: &a {b: {c: *a}}\n", "HP008", 1, 4),
        ("", "HP010", 0, 0),
        ("# nothing\n", "HP010", 0, 0),
        ("a: 1\n---\nb: 1\n", "HP010", 2, 1),
        ("1: a\n", "HP011", 1, 1),
        ("true: a\n", "HP011", 1, 1),
        ("a: 1\n~: b\n", "HP011", 2, 1),
        ("? [a]\n: b\n", "HP011", 1, 3),
        ("a: " + "9" * 10_000 + "\n", "HP012", 1, 4),
        ("a: 0x" + "f" * 10_000 + "\n", "HP012", 1, 4),
        ("a: 1." + "0" * 10_000 + "\n", "HP012", 1, 4),
        ("a: -1e400\n", "HP012", 1, 4),
        ("a: 0777\n", "HP015", 1, 4),
        ("a: [1, -00]\n", "HP015", 1, 8),
        ("a: +012\n", "HP015", 1, 4),
        ("a: 00.5\n", "HP015", 1, 4),
    ],
)
def test_bad_input_is_reported_at_its_place(text: str | bytes, code: str, line: int, column: int) -> None:
    first = refused(text)[0]

    assert first.code == code
    assert line == 0 or place(first) == (code, line, column)


def test_a_name_with_brackets_between_braces_is_to_be_quoted() -> None:
    hints = [
        refused(text)[0].hint for text in ('{"a[0]": 1, b.0[12]: 2}\n', "{a: {copy_of: r[1]}}\n", "{a: 'b' [1]}\n")
    ]

    assert hints == ['quote it: "b.0[12]"', 'quote it: "r[1]"', "put a comma between the keys"]


def test_all_mistakes_of_a_document_come_at_once_and_in_order() -> None:
    result = refused("a: 1\na: 2\n1: x\nb: !!int 3\nc: {<<: 1}\n")

    assert [place(d) for d in result] == [
        ("HP005", 2, 1), ("HP011", 3, 1), ("HP006", 4, 4), ("HP007", 5, 5)
    ]  # fmt: skip


def test_a_duplicate_key_alone_leaves_the_rest_to_be_checked() -> None:
    source = load_yaml("a: 1\na: 2\n")

    assert source.data == {"a": 1}
    assert [d.code for d in source.findings] == ["HP005"]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        bomb(30),
        "a: " + "[" * 100_000 + "\n",
        "- " * 50_000 + "a\n",
        "a: " + "{a: " * 20_000 + "\n",
        "? " * 20_000 + "\n",
        "a: " + "x" * 10_000_000 + "\n\t- [\n",
        "".join(f"k{i}: &k{i} *k{i}\n" for i in range(10_000)),
        "&a " * 10_000 + "x\n",
        "a: !" + "x" * 100_000 + " y\n",
        "[" + "a: b, " * 50_000,
    ],
    ids=["bomb", "brackets", "dashes", "braces", "questions", "long", "undefined", "anchors", "tag", "open"],
)
def test_hostile_documents_are_refused_quickly(text: str) -> None:
    start = time.process_time()

    assert refused(text)
    assert time.process_time() - start < 5


def test_aliases_repeat_their_values() -> None:
    assert load_yaml("a: &x {b: [1]}\nc: *x\nd: [*x, *x]\n").data["d"] == [{"b": [1]}, {"b": [1]}]


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(PlanError) as raised:
            load_yaml(path)

        assert raised.value.diagnostics[0].code == "HP001"


def test_an_endless_file_is_refused() -> None:
    assert [d.code for d in _endless()] == ["HP009"]


def _endless() -> list[Diagnostic]:
    with pytest.raises(PlanError) as raised:
        load_yaml(Path("/dev/zero"))
    return list(raised.value.diagnostics)


YAMLISH = st.text(alphabet="ab1: -[]{},&*!|>'\"#%@?\n\t\\~<.x\u00e9\U0001f600", max_size=80)


@given(YAMLISH)
def test_any_text_gives_data_or_diagnostics(text: str) -> None:
    try:
        load_yaml(io.StringIO(text))
    except PlanError as error:
        assert error.diagnostics
        assert str(error)


@given(st.binary(max_size=80))
def test_any_bytes_give_data_or_diagnostics(raw: bytes) -> None:
    try:
        load_yaml(io.BytesIO(raw))
    except PlanError as error:
        assert str(error)


def test_what_stands_under_a_second_key_of_a_name_is_read_too_and_is_found_where_it_was_written() -> None:
    source = load_yaml("b: {one: 1, both: 2}\nc: 3\nb: {both: 3, two: 4}\nb: {four: 5}\nc: {lost: 1}\n")
    lines = {name: getattr(source.span(("b", name)), "line", 0) for name in source.data["b"]}

    assert source.data == {"b": {"one": 1, "both": 2, "two": 4, "four": 5}, "c": 3}
    assert lines == {"one": 1, "both": 1, "two": 3, "four": 4}
    assert [(item.code, str(item.span)) for item in source.findings] == [
        ("HP005", "<text>:3:1"), ("HP005", "<text>:4:1"), ("HP005", "<text>:5:1")
    ]  # fmt: skip


def test_a_duplicate_key_beside_a_key_that_is_not_text_is_an_error() -> None:
    with pytest.raises(PlanError, match=r"HP005(.|\n)*HP011|HP011(.|\n)*HP005"):
        load_yaml("[1, 2]: 0\na: {b: 1}\na: {c: 1}\n")


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("0777", "write 777, or 0o777 for an octal number; quote it if it is text"),
        ("-0079", "write -79; quote it if it is text"),
        ("00.5", "write 0.5; quote it if it is text"),
        ("000", "write 0, or 0o0 for an octal number; quote it if it is text"),
    ],
)
def test_a_number_that_begins_with_a_zero_has_a_right_form(written: str, hint: str) -> None:
    (diagnostic,) = refused(f"a: {written}\n")
    assert diagnostic.hint == hint
