"""The tool behind the digests: its texts are the same each time, and what differs is shown."""

from __future__ import annotations

from pathlib import Path

from tests.frozen.calls import Names
from tests.frozen.moving import in_order, is_of_threads, spans, summed
from tests.frozen.play import subject
from tests.frozen.stage import ASPECTS
from tests.frozen.texts import differences, dump
from tests.python_calls import calls_of

ALIVE = {
    "allocations": [{"handle": "0x51a0000000000010", "size": 4096}],
    "reservations": [{"address": "0x7f0000000000", "size": 8192, "mappings": 1}],
    "mappings": [{"address": "0x7f0000001000", "size": 4096, "handle": "0x51a0000000000010"}],
    "buffers": [],
    "streams": [],
    "events": [],
}
MAP = (
    '{"call": "hipMemMap", "args": {"ptr": "0x7f0000001000", "size": 4096, "handle": "0x51a0000000000010"}, '
    '"result": "hipErrorUnknown", "code": 999, "injected": false}'
)
GRANT = (
    '{"call": "hipMemSetAccess", "args": {"ptr": "0x7f0000001000", "size": 4096, "desc": "0x5555", "count": 1}, '
    '"result": "hipSuccess", "code": 0, "injected": false}'
)


def test_addresses_are_places_in_objects() -> None:
    names = Names()

    assert [line for _, line in names.calls([MAP, GRANT], iter(["1:0=3"]), ALIVE)] == [
        "hipMemMap(ptr=r1+0x1000, size=4096, handle=h1) -> hipErrorUnknown",
        "hipMemSetAccess(ptr=r1+0x1000, size=4096, desc=(1:0=3), count=1)",
    ]
    assert [*names.alive(ALIVE)] == [
        "allocations: handle=h1 size=4096",
        "mappings: address=r1+0x1000 size=4096 handle=h1",
        "reservations: address=r1+0x0 size=8192 mappings=1",
    ]
    assert names.text("at 0x7f0000000010, not 0x7e0000000000") == "at r1+0x10, not 0x-"


def test_copies_by_threads_have_one_order() -> None:
    first = [("hipMemcpyAsync", "hipMemcpyAsync(dst=b1+0x0, stream=s1)"), ("hipSetDevice", "hipSetDevice(device=0)")]
    second = [("hipSetDevice", "hipSetDevice(device=0)"), ("hipMemcpyAsync", "hipMemcpyAsync(dst=b1+0x0, stream=s2)")]
    around = [("hipMemUnmap", "hipMemUnmap(ptr=r1+0x0)")]

    assert in_order(around + first + around) == in_order(around + second + around)
    assert in_order(around + first) != in_order(around)


def test_a_span_of_copies_is_one_word_and_its_calls_are_not_failed() -> None:
    calls = ["hipSetDevice", "hipMemUnmap", "hipSetDevice", "hipMemcpyAsync", "hipMemUnmap", "hipSetDevice"]

    assert [*spans(calls)] == [range(2, 4)]
    assert summed(calls) == ["hipSetDevice", "hipMemUnmap", "moves bytes", "hipMemUnmap", "hipSetDevice"]
    assert [is_of_threads(calls, n) for n in range(6)] == [False, False, True, True, False, True]


def test_the_first_line_that_differs_is_shown_under_its_act(tmp_path: Path) -> None:
    one = subject("quickstart")
    texts = {aspect: ["=== apply", "hipFree()"] for aspect in ASPECTS}
    dump(texts, tmp_path, one, "7.2")

    assert [*differences(texts, tmp_path, one, "7.2")] == []
    assert [*differences(texts | {"calls": ["=== apply", "hipMalloc()"]}, tmp_path, one, "7.2")] == [
        "quickstart 7.2 calls, line 2 of 2, === apply\n  was: hipFree()\n  now: hipMalloc()"
    ]


def test_calls_of_python_functions_are_counted() -> None:
    def called() -> int:
        return len("ab") + len("c")

    calls = calls_of(lambda: [called(), called()])

    assert (calls.python, calls.builtin) == (2, 4)
