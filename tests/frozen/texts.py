"""The texts of a plan on a release as files, and the first line of each that differs from them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from tests.frozen.play import Subject
from tests.frozen.stage import Texts


def dump(texts: Texts, folder: Path, one: Subject, release: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for aspect, lines in texts.items():
        if lines:
            _file(folder, one, release, aspect).write_text("\n".join(lines) + "\n")


def differences(texts: Texts, folder: Path, one: Subject, release: str) -> Iterator[str]:
    """For each aspect that differs from its file: the first line that does, under the act that it belongs to."""
    for aspect, now in texts.items():
        file = _file(folder, one, release, aspect)
        if not file.exists() or not now:
            continue
        before = file.read_text().splitlines()
        if before == now:
            continue
        pairs = enumerate(zip_longest(before, now))
        number, (was, is_now) = next((number, both) for number, both in pairs if both[0] != both[1])
        act = " ".join([line for line in before[:number] if line.startswith(("=== ", "--- "))][-2:])
        yield (
            f"{one.name} {release} {aspect}, line {number + 1} of {len(before)}, {act}\n"
            f"  was: {'(nothing)' if was is None else was}\n"
            f"  now: {'(nothing)' if is_now is None else is_now}"
        )


def _file(folder: Path, one: Subject, release: str, aspect: str) -> Path:
    return folder / f"{one.name}.{release}.{aspect}.txt"
