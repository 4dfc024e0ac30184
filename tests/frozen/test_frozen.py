"""hipplan does what it did: tests/frozen has digests of it, and `python -m tests.frozen` what lies behind one."""

from __future__ import annotations

import pytest

from tests.conftest import WHOLE, Simulator
from tests.frozen import digests
from tests.frozen.play import Subject, generated, play, shipped
from tests.frozen.stage import RELEASES

SAMPLE = {"quickstart": "7.2", "expert-parallel": "7.15", "sealed-weights": "6.4", "pair-8": "6.2", "pair-17": "6.4",
          "pair-26": "7.2", "pair-35": "7.15"}  # fmt: skip
"""What `make test` plays, each on one release; the failed calls are those of the pairs."""


def played() -> list[tuple[Subject, str]]:
    everything = [*shipped(), *generated()]
    if WHOLE:
        return [(one, release) for one in everything for release in RELEASES]
    return [(one, SAMPLE[one.name]) for one in everything if one.name in SAMPLE]


@pytest.mark.parametrize(("one", "release"), played(), ids=lambda value: getattr(value, "name", value))
def test_it_does_what_it_did(one: Subject, release: str, sim: Simulator) -> None:
    fails = digests.fails(one, release) and (WHOLE or one.seed is not None)
    now = digests.digests_of(play(one, release, fails), fails)
    known = digests.read(digests.file_of(one))[one.name, release]
    if not fails:
        known = known | {"failures": now["failures"]}

    assert digests.wrong(known, now) == [], f"python -m tests.frozen {one.name} --release {release} --against FOLDER"


def test_each_plan_and_pair_has_digests() -> None:
    for file in {digests.file_of(one) for one in [*shipped(), *generated()]}:
        mine = [one for one in [*shipped(), *generated()] if digests.file_of(one) == file]
        assert {*digests.read(file)} == {(one.name, release) for one in mine for release in RELEASES}
