"""What hipplan does, frozen: makes the texts of plans and pairs on releases of HIP, and compares them with the digests.

    python -m tests.frozen quickstart pair-7 --release 7.2       which aspects differ from the digests in tests/frozen
    python -m tests.frozen pair-7 --release 7.2 --show calls     the text behind a digest
    python -m tests.frozen --dump FOLDER                         all texts into a folder, in the old checkout
    python -m tests.frozen --against FOLDER                      and in the new one: the first line of each that differs
    python -m tests.frozen quickstart --write                    these digests are right now

Without names: all plans and pairs. Several names may be given as a range: pair-0..pair-19.
Exit code: 0 nothing differs, 1 something does, 2 there is no such plan.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.frozen import digests
from tests.frozen.play import Subject, generated, play, shipped, subject
from tests.frozen.stage import ASPECTS, RELEASES
from tests.frozen.texts import differences, dump


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="PLAN-OR-PAIR")
    parser.add_argument("--release", choices=RELEASES, action="append", help="only this one; may be repeated")
    parser.add_argument("--show", choices=ASPECTS, metavar="ASPECT", help=f"print the text: {', '.join(ASPECTS)}")
    parser.add_argument("--write", action="store_true", help="write the digests")
    parser.add_argument("--dump", metavar="FOLDER", type=Path, help="write the texts there")
    parser.add_argument("--against", metavar="FOLDER", type=Path, help="compare with the texts there")
    parser.add_argument("--failures", choices=("yes", "no"), help="whether calls are failed too, whatever is usual")
    given = parser.parse_args()
    os.environ.setdefault("HIPSIM_LOG", "none")
    try:
        subjects = [*_chosen(given.names)] if given.names else [*shipped(), *generated()]
    except KeyError as error:
        print(f"there is no plan or pair {error}", file=sys.stderr)
        return 2
    differ = 0
    for one in subjects:
        for release in given.release or RELEASES:
            differ += _one(one, release, given)
    print(f"{differ} differ; {time.process_time():.1f} s of CPU", file=sys.stderr)
    return 1 if differ else 0


def _chosen(names: list[str]) -> Iterator[Subject]:
    for name in names:
        first, _, last = name.partition("..")
        if last:
            begin, end = (int(part.removeprefix("pair-")) for part in (first, last))
            yield from (subject(f"pair-{seed}") for seed in range(begin, end + 1))
        else:
            yield subject(first)


def _one(one: Subject, release: str, given: argparse.Namespace) -> int:
    """One plan on one release; returns how many aspects differ."""
    fails = digests.fails(one, release) if given.failures is None else given.failures == "yes"
    fails = fails if given.show is None else given.show == "failures"
    try:
        texts = play(one, release, fails)
    except Exception as error:
        print(f"{one.name} {release}: cannot be played: {type(error).__name__}: {error}")
        return 1
    if given.show:
        print("\n".join(texts[given.show]))
        return 0
    if given.dump:
        dump(texts, given.dump, one, release)
        return 0
    if given.against:
        lines = [*differences(texts, given.against, one, release)]
        print(*lines, sep="\n", end="\n" if lines else "")
        return len(lines)
    file, now = digests.file_of(one), digests.digests_of(texts, fails)
    known = digests.read(file)
    if given.write:
        digests.write(file, known | {(one.name, release): now})
        return 0
    wrong = [aspect for aspect in digests.wrong(known.get((one.name, release)), now) if fails or aspect != "failures"]
    if wrong:
        print(f"{one.name} {release}: {', '.join(wrong)}")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
