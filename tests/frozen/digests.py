"""The digests in the repository: a line for each plan and release, a column for each aspect."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tests.frozen.play import Subject
from tests.frozen.stage import ASPECTS, RELEASES, Texts

FOLDER = Path(__file__).parent
_NOT_MADE = "-"
_LENGTH = 8

Digests = dict[str, str]
Key = tuple[str, str]
"""Name of a plan or pair, and release."""


def file_of(subject: Subject) -> Path:
    return FOLDER / ("shipped.txt" if subject.seed is None else "pairs.txt")


def fails(subject: Subject, release: str) -> bool:
    """Whether the calls are failed there too: for pairs on one release each, for plans of large machines on 7.2."""
    if subject.seed is not None:
        return [*RELEASES][subject.seed % len(RELEASES)] == release
    return subject.devices == 2 or release == "7.2"


def digests_of(texts: Texts, failures: bool) -> Digests:
    made = {aspect: hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_LENGTH] for aspect, lines in texts.items()}
    return made if failures else made | {"failures": _NOT_MADE}


def read(file: Path) -> dict[Key, Digests]:
    if not file.exists():
        return {}
    lines = [line.split() for line in file.read_text().splitlines() if not line.startswith("#")]
    return {(name, release): dict(zip(ASPECTS, digests, strict=True)) for name, release, *digests in lines}


def write(file: Path, digests: Mapping[Key, Digests]) -> None:
    columns = " ".join(f"{aspect:<{_LENGTH}}" for aspect in ASPECTS)
    lines = [f"# {'plan':<18} {'':<4} {columns}".rstrip()]
    for (name, release), own in sorted(digests.items(), key=lambda item: _place(*item[0])):
        lines.append(f"{name:<20} {release:<4} {' '.join(f'{own[aspect]:<{_LENGTH}}' for aspect in ASPECTS)}".rstrip())
    file.write_text("\n".join(lines) + "\n")


def _place(name: str, release: str) -> tuple[str, int, int]:
    text, _, number = name.rpartition("-")
    return (text, int(number), [*RELEASES].index(release)) if text == "pair" else (name, 0, [*RELEASES].index(release))


def wrong(known: Digests | None, now: Digests) -> list[str]:
    """The aspects whose digests differ."""
    return [aspect for aspect in ASPECTS if known is None or known[aspect] != now[aspect]]
