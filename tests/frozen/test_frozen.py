"""hipplan does what it did: tests/frozen has digests of it, and `python -m tests.frozen` what lies behind one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hipplan.program import on_demand
from tests.conftest import ROOT, WHOLE, Simulator
from tests.frozen import digests
from tests.frozen.play import Subject, generated, play, shipped, subject
from tests.frozen.stage import RELEASES, Texts
from tests.frozen.texts import differences

SAMPLE = {"quickstart": "7.2", "expert-parallel": "7.15", "sealed-weights": "6.4", "pair-8": "6.2", "pair-17": "6.4",
          "pair-26": "7.2", "pair-35": "7.15"}  # fmt: skip
"""What `make test` plays, each on one release; the failed calls are those of the pairs."""


def played() -> list[tuple[Subject, str]]:
    everything = [*shipped(), *generated()]
    if WHOLE:
        return [(one, release) for one in everything for release in RELEASES]
    return [(one, SAMPLE[one.name]) for one in everything if one.name in SAMPLE]


@pytest.mark.in_parts
@pytest.mark.parametrize(("one", "release"), played(), ids=lambda value: getattr(value, "name", value))
def test_it_does_what_it_did(one: Subject, release: str, sim: Simulator, tmp_path: Path) -> None:
    fails = digests.fails(one, release) and (WHOLE or one.seed is not None)
    texts = play(one, release, fails)
    now = digests.digests_of(texts, fails)
    known = digests.read(digests.file_of(one))[one.name, release]
    if not fails:
        known = known | {"failures": now["failures"]}

    assert digests.wrong(known, now) == [], why(one, release, texts, tmp_path)


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("name", "release"),
    [("quickstart", "6.2"), ("expert-parallel", "7.15"), ("pair-8", "6.4"), ("pair-26", "6.2"),
     *([("held-cache", "6.2"), ("sealed-weights", "7.2")] if WHOLE else [])],
)  # fmt: skip
def test_what_is_made_on_demand_does_it_too(
    name: str, release: str, sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans have few chunks: here one is enough for a run."""
    monkeypatch.setattr(on_demand, "LEAST", 1)
    one = subject(name)
    fails = digests.fails(one, release)
    now = digests.digests_of(play(one, release, fails), fails)
    assert digests.wrong(digests.read(digests.file_of(one))[name, release], now) == []


def why(one: Subject, release: str, texts: Texts, folder: Path) -> str:
    """Whether a process of its own makes other texts than this one, or how to see what differs."""
    dump = [sys.executable, "-m", "tests.frozen", one.name, "--release", release, "--dump", str(folder)]
    subprocess.run(dump, cwd=ROOT, check=True)
    lines = [*differences(texts, folder, one, release)]
    if lines:
        return "a process of its own differs (was) from this one (now):\n" + "\n".join(lines)
    return f"python -m tests.frozen {one.name} --release {release} --against FOLDER"


def test_each_plan_and_pair_has_digests() -> None:
    for file in {digests.file_of(one) for one in [*shipped(), *generated()]}:
        mine = [one for one in [*shipped(), *generated()] if digests.file_of(one) == file]
        assert {*digests.read(file)} == {(one.name, release) for one in mine for release in RELEASES}
