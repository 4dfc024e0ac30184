"""What a rank may be sent by another one that is broken or hostile: an error that names it, and nothing is kept."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import hipplan
from hipplan.files import strict_json
from hipplan.processes.connections import Late
from hipplan.processes.packets import Gone
from hipplan.program.parts import Offer, RankPart, offer_of, with_parts
from hipplan.ranks.all_ranks import AllRanks, ranks_of
from hipplan.ranks.links import LinkMaker, Links
from tests.descriptors import descriptors

HEAD = struct.Struct(">II")
Packet = bytes | tuple[bytes, int]
"""One packet, and how many descriptors go with it."""


@pytest.fixture
def ends() -> Iterator[tuple[Links, socket.socket]]:
    """A connection to rank 1, and that rank's end of it."""
    own, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.setblocking(False)
    links = Links({1: own})
    with peer:
        yield links, peer
    links.close()


def head(length: int, count: int = 0) -> bytes:
    return b"H" + HEAD.pack(length, count)


def send(link: socket.socket, packets: Sequence[Packet]) -> None:
    for packet in packets:
        data, count = packet if isinstance(packet, tuple) else (packet, 0)
        rights = array.array("i", [0] * count)
        link.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if count else [])


def text(message: Any) -> list[Packet]:
    """The packets of a message."""
    encoded = strict_json.dumps(message).encode()
    return [head(len(encoded)), b"J" + encoded]


@pytest.mark.parametrize(
    "packets",
    [
        [b"x"],
        [b"H"],
        [b"H123"],
        [b"H" + b"1" * 100],
        [head(2**32 - 1)],
        [head(2, 2**32 - 1)],
        [b"J{}"],
        [head(2), head(2)],
        [head(2), b"J{}}"],
        [head(2), b"J[]"],
        [head(2), b"J{]"],
        [head(2), b"J\xff\xff"],
        [head(60_000), b"J" + b"[" * 60_000],
        [head(7), b'J{"a":1e'],
        [b"A"],
        [(b"F", 1)],
        [(head(2), 1), b"J{}"],
        [head(2, 1), (b"F", 3)],
        [b"closed"],
        [head(2, 1), b"J{}", b"closed"],
    ],
)
def test_a_message_that_is_invalid_is_the_end_of_its_rank(ends: Any, packets: Sequence[Packet]) -> None:
    links, link = ends
    opened = descriptors()
    send(link, packets)
    with pytest.raises(Gone) as caught:
        links.exchange({1: {}}, time.monotonic() + 60, lambda: False)
    assert caught.value.peer == 1
    assert descriptors() == opened


@pytest.mark.parametrize("packets", [[], [head(2)], [head(2, 1), b"J{}"]])
def test_half_a_message_is_waited_for_until_the_deadline(ends: Any, packets: Sequence[Packet]) -> None:
    links, link = ends
    send(link, packets)
    with pytest.raises(Late) as caught:
        links.exchange({1: {}}, time.monotonic() + 0.1, lambda: False)
    assert caught.value.missing == [1]
    link.close()
    with pytest.raises(Gone):
        links.exchange({1: {}}, time.monotonic() + 60, lambda: False)


def test_what_came_before_the_end_of_the_wait_is_read(ends: Any) -> None:
    """A rank sends all it has to and then fails, which ends the wait of the others: its message counts."""
    links, link = ends
    for ends_now in (lambda: True, lambda: False):
        send(link, [head(7), b'J{"a":1}'])
        received = links.exchange({1: {}}, time.monotonic() + (60 if ends_now() else 0), ends_now)
        assert received[1].message == {"a": 1}


def test_descriptors_that_came_are_not_for_programs_that_are_started_later(ends: Any) -> None:
    links, link = ends
    send(link, [head(2, 1), b"J{}", (b"F", 1)])
    (received,) = links.exchange({1: {}}, time.monotonic() + 60, lambda: False).values()
    assert [os.get_inheritable(descriptor) for descriptor in received.descriptors] == [False]
    received.close()


PLAN = """hipplan: 1
ranks: {}
devices: {gpu: {ordinal: $(rank)}}
regions:
  heap: {device: gpu, size: 4MiB, map: {ranks: node}, tensors: {x: {dtype: f32, shape: [8]}}}
"""


def programs() -> AllRanks:
    def read(rank: hipplan.Rank) -> hipplan.LoadedPlan:
        return hipplan.load(PLAN, rank=rank)

    return AllRanks(ranks_of(read(hipplan.Rank(ranks=2)), 2), read, hipplan.machine("sim-2"))


@pytest.mark.parametrize(
    "lie",
    [
        {"reserve": 2**20},
        {"tensors": [{"offset": 4 << 20}]},
        {"tensors": [{"offset": -4096}]},
        {"tensors": [{"size": 2**40}]},
        {"tensors": [{"shape": [2**40]}]},
        {"tensors": [{"dtype": "u1000"}]},
        {"tensors": [{"name": "other.x"}]},
        {"stretches": []},
        {"stretches": [{"again": []}]},
        {"stretches": [{"again": [{"device": "gpu", "uuid": "", "size": 0}]}]},
        {"stretches": [{"again": [{"device": "gpu", "uuid": "", "size": 2**63}]}]},
        {"stretches": [{"count": 0}]},
        {"stretches": [{"count": 10**6 + 1, "again": [{"device": "gpu", "uuid": "", "size": 1}]}]},
        {"stretches": [{"count": -1}]},
        {"region": 7},
    ],
)
def test_a_rank_s_offer_is_checked(lie: dict[str, Any]) -> None:
    from pydantic import TypeAdapter

    offers = TypeAdapter(Offer)
    answer = offers.dump_python(offer_of(programs().own(1)), mode="json")
    assert offers.validate_python(answer).rank == 1
    part = answer["parts"][0]
    for key, value in lie.items():
        if not isinstance(value, list) or not value:
            part[key] = value
        else:
            part[key][0] |= value[0]
    with pytest.raises(ValueError, match="parts"):
        offers.validate_python(answer)


def test_an_offer_of_many_chunks_is_as_long_as_one_of_few() -> None:
    from pydantic import TypeAdapter

    offers, sizes = TypeAdapter(Offer), []
    for chunks in (100, 1000):
        plan = {
            "hipplan": 1,
            "ranks": {},
            "devices": {"gpu": {"ordinal": "$(rank)"}},
            "regions": {"heap": {"device": "gpu", "size": chunks << 21, "chunk": "2MiB", "map": {"ranks": "node"}}},
        }
        program = hipplan.compile(hipplan.load(plan, rank=hipplan.Rank(ranks=2)), "sim-2")
        offer = offer_of(program)
        text = offers.dump_json(offer)
        sizes.append(len(text))
        assert offers.validate_json(text) == offer
        assert [chunk.size for chunk in offer.parts[0].chunks()] == [2 << 20] * chunks
    assert sizes[1] - sizes[0] <= 20


def test_a_region_is_offered_once() -> None:
    ranks = programs()
    offer = offer_of(ranks.own(1))
    twice = Offer(rank=1, parts=(*offer.parts, *offer.parts), needs={})
    assert isinstance(offer.parts[0], RankPart)
    with pytest.raises(hipplan.MachineError, match="HP433"):
        with_parts(ranks.own(0), [twice], {})


def connecting(maker: LinkMaker, user: int | None) -> int:
    """A process that sends the nonce as some user, until the connection is closed."""
    child = os.fork()
    if child == 0:
        try:
            if user is not None:
                os.setuid(user)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
                link.connect(f"\0{maker.name}")
                send(link, text({"nonce": maker.nonce, "rank": 1}))
                link.recv(1)
        finally:
            os._exit(0)
    return child


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("user", [None, 12345, 65534], ids=["the same", "another", "an unknown user"])
def test_only_the_same_user_is_believed(user: int | None) -> None:
    """The process that connects has the right nonce."""
    maker = LinkMaker()
    child = connecting(maker, user)
    ended: list[int] = []

    def look() -> bool:
        if not ended and os.waitpid(child, os.WNOHANG)[0]:
            ended.append(child)
        return bool(ended)

    try:
        links = maker.links(0, {1: ("", "")}, time.monotonic() + 60.0, look)
    except Late as late:
        assert user is not None
        assert late.missing == [1]
    else:
        assert user is None
        assert links.ranks == [1]
        links.close()
    finally:
        maker.close()
        if not ended:
            os.kill(child, 9)
            os.waitpid(child, 0)


@pytest.mark.parametrize(
    "packets",
    [
        [],
        [b"x"],
        text({}),
        text({"nonce": 7, "rank": 1}),
        text({"nonce": "\N{SNOWMAN}", "rank": 1}),
        text({"nonce": "the nonce", "rank": True}),
        text({"nonce": "the nonce", "rank": 0}),
        text({"nonce": "the nonce", "rank": 2}),
        [head(2, 1), b"J{}", (b"F", 1)],
        [head(5000)],
    ],
)
def test_a_process_that_is_not_the_rank_that_is_waited_for_is_not_taken_for_it(packets: Sequence[Packet]) -> None:
    """It delays no rank either: the true one is linked meanwhile."""
    opened = descriptors()
    maker = LinkMaker()
    maker.nonce = "the nonce"
    with contextlib.ExitStack() as stack:
        for sent in (packets, text({"nonce": "the nonce", "rank": 1})):
            link = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            link.connect(f"\0{maker.name}")
            send(link, sent)
        links = maker.links(0, {1: ("", "")}, time.monotonic() + 60.0, lambda: False)
        assert links.ranks == [1]
        links.send_closed()
        assert link.recv(100) == b"closed"
        links.close()
    maker.close()
    assert descriptors() == opened
