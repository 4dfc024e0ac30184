"""Tables for people: as wide as they get in files, folded on terminals that are narrower."""

from __future__ import annotations

import io

import pytest

from hipplan.show.tables import table

ROWS = [("1", "weights", "access of gpu.0, gpu.1, gpu.2 and gpu.3 for reading and writing"), ("12", "x", "")]
COLUMNS = (">step", "name", "what it is")


def test_without_a_width_nothing_is_folded() -> None:
    lines = table(COLUMNS, ROWS).splitlines()

    assert len(lines) == 5
    assert lines[3] == f"   1  weights  {ROWS[0][2]}"
    assert lines[4] == "  12  x"


def test_on_a_terminal_every_line_fits_and_no_word_is_lost() -> None:
    for width in (32, 40, 60):
        lines = table(COLUMNS, ROWS, width).splitlines()

        assert max(map(len, lines)) <= width
        assert set(ROWS[0][2].split()) <= set(" ".join(lines).split())
        assert lines[3].startswith("   1  weights  access of")


def test_a_name_is_never_folded() -> None:
    names = [f"model.layers.{number}.block_sparse_moe.experts.7.w2.weight" for number in range(3)]
    rows = [("1", name, "access of gpu.0, gpu.1, gpu.2 and gpu.3 for reading and writing") for name in names]
    narrow = table(COLUMNS, rows, 80)
    families = table((">count", "names"), [("3", " ".join(names))], 60)

    assert all(name in narrow for name in names)
    assert all(name in families for name in names)


def test_where_even_folding_does_not_help_the_rule_is_no_longer_than_a_line() -> None:
    lines = table(COLUMNS, ROWS, 10).splitlines()

    assert len(lines[2]) <= 10


def test_a_table_that_fits_is_the_same_with_a_width() -> None:
    assert table(COLUMNS, ROWS, 200) == table(COLUMNS, ROWS)


def test_an_output_without_line_characters_gets_hyphens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))

    assert table(COLUMNS, ROWS).splitlines()[2].startswith("----  -------")
