"""A C library and a holder that is broken or hostile: an error, with nothing left in the process; never more."""

from __future__ import annotations

import copy
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hipplan.files import strict_json
from hipplan.holders import names
from hipplan.holders.requests import send_request
from hipplan.processes import packets
from tests.c.programs import Program, alive
from tests.conftest import not_under_tsan
from tests.unit.test_links import head

pytestmark = not_under_tsan

Message = dict[str, Any]
SEES = {
    "form": 1,
    "family": "sim",
    "addresses": "same",
    "devices": [
        ["35316130303030303030303030303030", "0000:01:00.0"],
        ["35316130303030303030303030303031", "0000:02:00.0"],
    ],
    "links": [[0, 1], [1, 0]],
}


@pytest.fixture
def true_answer(kept: int) -> Iterator[tuple[Message, list[int]]]:
    """What the holder "w" answers to a C program, and the descriptors that come with it."""
    connection = names.connect("w")
    received = send_request(connection, "w", {"want": "attach", "access": "plan", "sees": SEES}, 60.0)
    yield received.message | {"number": 1}, received.descriptors
    received.close()
    connection.close()


class FalseHolder:
    """A holder that reads a request, and sends what a test tells it to."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "false"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(str(self.path))
        self._listening.listen()

    def serve(self, send: Callable[[socket.socket], None]) -> None:
        """Serve one client, in a thread."""
        self._thread = threading.Thread(target=self._serve, args=(send,))
        self._thread.start()

    def _serve(self, send: Callable[[socket.socket], None]) -> None:
        link, _ = self._listening.accept()
        with link:
            link.settimeout(60)
            assert link.recv(100)[:1] == b"H"
            assert link.recv(1 << 17)[:1] == b"J"
            try:
                send(link)
                while link.recv(1 << 17):  # until the client has ended
                    pass
            except OSError:
                pass

    def close(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._listening.close()


@pytest.fixture
def false_holder(tmp_path: Path) -> Iterator[FalseHolder]:
    holder = FalseHolder(tmp_path)
    yield holder
    holder.close()


def send(link: socket.socket, message: Any, descriptors: Sequence[int] = (), *, most: int = 1 << 30) -> None:
    """Send an answer, of at most so many packets, then close."""
    text = message if isinstance(message, bytes) else strict_json.dumps(message).encode()
    parts: list[tuple[bytes, Sequence[int]]] = [(head(len(text), len(descriptors)), ())]
    parts += [(b"J" + text[at : at + 65536], ()) for at in range(0, len(text), 65536)]
    parts += [(b"F", descriptors[at : at + 253]) for at in range(0, len(descriptors), 253)]
    for packet, some in parts[:most]:
        socket.send_fds(link, [packet], list(some)) if some else link.send(packet)
        if some:
            assert link.recv(10) == b"A"
    if most < len(parts):
        link.shutdown(socket.SHUT_RDWR)


def refused(program: Program, holder: FalseHolder, timeout: str = "60") -> str:
    """The text of the error, after a check that nothing is left."""
    code, text = program.text("attach", str(holder.path), "-", "-", timeout)
    assert code == 455, text
    assert program.text("find", "model")[0] == 458
    assert "socket:" not in " ".join(map(os.readlink, Path(f"/proc/{program.process.pid}/fd").iterdir()))
    return text


def test_the_library_attaches_to_a_holder_that_sends_the_true_answer(
    true_answer: tuple[Message, list[int]], program: Program, false_holder: FalseHolder
) -> None:
    message, descriptors = true_answer
    false_holder.serve(lambda link: send(link, message, descriptors))
    code, text = program.text("attach", str(false_holder.path))
    assert (code, text) == (0, "")
    assert program.text("detach") == (0, "")
    assert alive(program) == []


def change(keys: Sequence[Any], value: Any) -> Callable[[Message], None]:
    """A change of one value in the answer."""

    def apply(message: Message) -> None:
        inside: Any = message
        for key in keys[:-1]:
            inside = inside[key]
        inside[keys[-1]] = value

    return apply


def find(message: Message, operation: str) -> list[Any]:
    row: list[Any] = next(row for row in message["rows"] if row[0] == operation)
    return row


def of(operation: str, field: int, value: Any) -> Callable[[Message], None]:
    """A change of one field in the first row of an operation."""

    def apply(message: Message) -> None:
        find(message, operation)[field] = value

    return apply


def drop(key: str) -> Callable[[Message], None]:
    return lambda message: message.pop(key)


CHANGES: dict[str, Callable[[Message], Any]] = {
    "no number": drop("number"),
    "another number": change(["number"], 2),
    "no rows": drop("rows"),
    "rows that are no list": change(["rows"], {}),
    "another operation": of("map", 0, "create allocation"),
    "a slot too far": of("map", 2, 2**40),
    "a slot twice": of("map", 2, 0),
    "a negative slot": of("map", 2, -1),
    "a range that is a mapping": lambda message: find(message, "map").__setitem__(3, find(message, "map")[2]),
    "an offset behind the range": of("map", 4, 2**45),
    "an offset that is too large": of("map", 4, 2**63),
    "a mapping larger than its memory": of("map", 6, 2**30),
    "memory that is a range": lambda message: find(message, "map").__setitem__(5, find(message, "map")[3]),
    "rights of nothing": of("set access", 2, 0),
    "a device that does not exist": of("set access", 3, [[7, "rw"]]),
    "a right that does not exist": of("set access", 3, [[0, "x"]]),
    "rights before": of("set access", 4, []),
    "together that is no boolean": of("set access", 5, 1),
    "an import of a device that does not exist": of("import allocation", 4, 9),
    "a row too short": lambda message: find(message, "map").pop(),
    "a row too long": lambda message: find(message, "map").append(1),
    "an alignment of 3": of("reserve", 4, 3),
    "a name with a zero": of("reserve", 1, "a\0b"),
    "a name that is no Unicode": of("reserve", 1, "\ud800"),
    "an object without a range": change(["objects", 0, 2], 999),
    "an object behind its range": change(["objects", 0, 3], 2**40),
    "an object with many dimensions": change(["objects", 0, 6], [1] * 100),
    "an object with a negative dimension": change(["objects", 0, 6], [-1]),
    "an object of a device that does not exist": change(["objects", 0, 7], 2),
    "a device that does not exist too": change(["devices", 0, 1], 2),
    "fractions": of("map", 4, 0.5),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_wrong_answer(
    true_answer: tuple[Message, list[int]], program: Program, false_holder: FalseHolder, changed: str
) -> None:
    message, descriptors = true_answer
    message = copy.deepcopy(message)
    CHANGES[changed](message)
    false_holder.serve(lambda link: send(link, message, descriptors))
    assert "the answer is not in order" in refused(program, false_holder)


@pytest.mark.parametrize(
    "text",
    [
        b"x", b"{", b"[]", b"{}", b'{"number": 1', b'{"number" 1}', b'{"number": 1} x', b'{"a": ' + b"[" * 100,
        b'{"a": "', b'{"a": "\\', b'{"a": "\\u12', b'{"a": "\\x"}', b'{"a": }', b'{"number": 99999999999999999999}',
        b'{"refused": {"code": "HP452"}}', b'{"refused": {"code": "x", "summary": "y"}}', b'{"refused": 1}', b"",
    ],
)  # fmt: skip
def test_a_text_that_is_no_answer(kept: int, program: Program, false_holder: FalseHolder, text: bytes) -> None:
    false_holder.serve(lambda link: send(link, text))
    assert "the answer is not in order" in refused(program, false_holder)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([head(2**32 - 1)], "too long"),
        ([head(10, 2**32 - 1)], "too long"),
        ([b"J{}"], "unexpected"),
        ([head(2), head(2)], "unexpected"),
        ([head(1), b"J{}"], "unexpected"),
        ([b"H123"], "unexpected"),
        ([b"A"], "unexpected"),
        ([b"closed"], "it has ended"),
        ([b"x" * 70_000], "truncated"),
    ],
)
def test_packets_that_break_the_protocol(
    kept: int, program: Program, false_holder: FalseHolder, sent: list[bytes], why: str
) -> None:
    def send_all(link: socket.socket) -> None:
        for packet in sent:
            link.send(packet)

    false_holder.serve(send_all)
    assert why in refused(program, false_holder)


def test_descriptors_that_were_not_announced(kept: int, program: Program, false_holder: FalseHolder) -> None:
    read, write = os.pipe()

    def send_more(link: socket.socket) -> None:
        link.send(head(2))
        socket.send_fds(link, [b"F"], [read, write])

    false_holder.serve(send_more)
    assert "more than it announced" in refused(program, false_holder)
    os.close(read)
    os.close(write)


def test_descriptors_of_something_else(
    true_answer: tuple[Message, list[int]], program: Program, false_holder: FalseHolder
) -> None:
    message, descriptors = true_answer
    pipe = os.pipe()
    false_holder.serve(lambda link: send(link, message, [pipe[0]] * len(descriptors)))
    code, text = program.text("attach", str(false_holder.path))
    assert code == 401 and "nothing leaked" in text
    assert alive(program) == []
    for end in pipe:
        os.close(end)


def test_fewer_descriptors(true_answer: tuple[Message, list[int]], program: Program, false_holder: FalseHolder) -> None:
    message, descriptors = true_answer
    false_holder.serve(lambda link: send(link, message, descriptors[:-1]))
    assert "descriptors came for" in refused(program, false_holder)


@pytest.mark.parametrize("sent", range(3))
def test_a_holder_that_is_killed_after_so_many_packets(
    true_answer: tuple[Message, list[int]], program: Program, false_holder: FalseHolder, sent: int
) -> None:
    message, descriptors = true_answer
    false_holder.serve(lambda link: send(link, message, descriptors, most=sent))
    assert "does not answer" in refused(program, false_holder)


def test_signs_of_life_without_end(kept: int, program: Program, false_holder: FalseHolder) -> None:
    def flood(link: socket.socket) -> None:
        while True:
            link.send(b"L")

    false_holder.serve(flood)
    assert "it did not answer in time" in refused(program, false_holder, "0.3")


def test_control_characters_of_a_holder_are_not_shown(kept: int, program: Program, false_holder: FalseHolder) -> None:
    answer = {"refused": {"code": "HP454", "summary": "a\n\x1b[2Jb", "why": "", "hint": ""}}
    false_holder.serve(lambda link: send(link, answer))
    code, text = program.text("attach", str(false_holder.path))
    assert (code, text) == (454, "error[HP454]: a??[2Jb")


@pytest.mark.parametrize(
    "wrong",
    [
        change(["form"], 2), change(["form"], True), change(["family"], "x"), change(["addresses"], []),
        change(["devices"], {}), change(["devices"], [["x", ""]]), change(["devices"], [["35", ""]]),
        change(["devices"], [["", "x"]]), change(["devices"], [[1, 2]]), change(["devices"], [["", ""]] * 2000),
        change(["links"], [[0, 9]]), change(["links"], [[0, True]]), change(["links"], [[0]]), change(["links"], None),
    ],
)  # fmt: skip
def test_a_holder_refuses_what_no_library_sends(kept: int, wrong: Callable[[Message], None]) -> None:
    sees = copy.deepcopy(SEES)
    wrong(sees)
    connection = names.connect("w")
    with pytest.raises(Exception, match="does not understand this request") as caught:
        send_request(connection, "w", {"want": "attach", "access": "plan", "sees": sees}, 60.0)
    assert caught.value.diagnostics[0].code == "HP452"  # type: ignore[attr-defined]
    connection.close()


@pytest.mark.parametrize(
    ("sees", "summary"),
    [
        ({"family": "amd"}, "the runtimes are of different kinds"),
        ({"devices": [], "links": []}, "this process does not see gpu"),
        ({"links": []}, "cannot be given access"),
    ],
)
def test_a_process_that_does_not_see_what_it_needs(kept: int, sees: Message, summary: str) -> None:
    connection = names.connect("w")
    with pytest.raises(Exception, match=summary) as caught:
        send_request(connection, "w", {"want": "attach", "access": "plan", "sees": SEES | sees}, 60.0)
    assert caught.value.diagnostics[0].code == "HP454"  # type: ignore[attr-defined]
    connection.close()


def test_the_numbers_of_the_wire_format_are_the_same_in_both_languages() -> None:
    source = (Path(__file__).parents[2] / "cpp/c/exchange.hpp").read_text()
    assert f"text_max = std::size_t{{{packets.TEXT_MAX >> 20}}} << 20;" in source
    assert packets.DESCRIPTORS_MAX == 1 << 20 and "descriptors_max = std::size_t{1} << 20;" in source
    assert f"batch = {packets._BATCH};" in source
    assert packets._PACKET == 1 << 16 and "packet_bytes = std::size_t{1} << 16;" in source
