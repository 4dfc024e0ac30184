"""Sleeping bytes in a file: only this user can open it, and what wakes is what slept."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import ApplyError
from hipplan.layout.layout import Layout
from tests.conftest import Simulator
from tests.descriptors import opened

HALF = 32 << 10
"""Bytes of half a chunk: sleeping bytes take real memory and real files."""
NOBODY = 65534
PLAN: dict[str, Any] = {
    "hipplan": 1,
    "devices": {"gpu": {"count": 2}},
    "regions": {
        "weights": {"devices": ["gpu.*"], "spread": "interleave", "size": "128KiB", "chunk": "64KiB"},
        "cache": {"device": "gpu.1", "size": "128KiB", "chunk": "64KiB", "reserve": "1MiB"},
    },
}
BYTES = {"weights": 7, "cache": 5}

Changes = Callable[[Path], object]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")


@pytest.fixture
def layout(sim: Simulator) -> Iterator[Layout]:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        for name, value in BYTES.items():
            layout.fill(name, value)
        yield layout


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """In a folder where everybody can make files."""
    folder = tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder / "copy.bin"


def require_bytes(layout: Layout, sim: Simulator, *names: str) -> None:
    for name in names or BYTES:
        piece = layout[name]
        assert sim.read(piece.address, piece.nbytes) == bytes([BYTES[name]]) * piece.nbytes


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def held_open(folder: Path) -> list[str]:
    """What this process has open there."""
    return [file for _, file in opened() if file.startswith(f"{folder}/")]


def flip(file: Path, at: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)
        opened.seek(at)
        opened.write(bytes([byte[0] ^ 16]))


def test_only_this_user_can_open_the_file(layout: Layout, sim: Simulator, file: Path) -> None:
    before = os.umask(0)
    try:
        layout.sleep(["weights", "cache"], to=file)
    finally:
        os.umask(before)
    status = file.stat()
    assert (status.st_mode & 0o7777, status.st_uid, status.st_nlink) == (0o600, os.geteuid(), 1)
    layout.wake()
    require_bytes(layout, sim)


def linked(file: Path) -> None:
    (file.parent.parent / "victim").write_text("victim")
    (file.parent.parent / "victim").chmod(0o600)
    file.symlink_to(file.parent.parent / "victim")


def owned_by_another(file: Path) -> None:
    file.write_text("another's")
    file.chmod(0o600)
    os.chown(file, NOBODY, NOBODY)


def open_to_all(file: Path) -> None:
    file.write_text("mine")
    file.chmod(0o666)


PLANTED = [
    pytest.param(linked, "it is a link", id="link"),
    pytest.param(open_to_all, "other users may open it: its mode is 0666", id="open to all"),
    pytest.param(owned_by_another, f"it belongs to another user, {NOBODY}", id="another's", marks=needs_root),
]


@pytest.mark.parametrize(("plant", "why"), PLANTED)
def test_what_lies_there_is_refused_unless_it_is_ours_and_private(
    plant: Changes, why: str, layout: Layout, sim: Simulator, file: Path
) -> None:
    plant(file)
    before, alive, told = file.read_bytes(), sim.alive(), list[object]()
    with pytest.raises(ApplyError, match=rf"HP416(.|\n)*{why}") as caught:
        layout.sleep("cache", to=file, on_unmap=told.append)
    assert caught.value.exit_code == 4
    assert (layout.asleep, told, sim.alive() == alive) == ({}, [], True)
    assert file.read_bytes() == before
    assert names(file.parent) == [file.name]


@pytest.mark.parametrize(
    ("name", "why"), [("copy\0.bin", "a NUL"), ("copy.bin\0", "a NUL"), ("\ud800.bin", "surrogates not allowed")]
)
def test_a_name_that_no_file_can_have_is_refused(
    name: str, why: str, layout: Layout, sim: Simulator, tmp_path: Path
) -> None:
    for write in (lambda path: layout.sleep("cache", to=path), lambda path: layout.save("cache", path)):
        with pytest.raises(ApplyError, match=rf"HP413.*cannot be written\n(.|\n)*{why}"):
            write(tmp_path / name)
    assert (layout.asleep, names(tmp_path)) == ({}, [])
    require_bytes(layout, sim)


def test_what_is_ours_and_private_is_replaced(layout: Layout, sim: Simulator, file: Path) -> None:
    file.write_text("mine")
    file.chmod(0o600)
    with file.open("rb") as old:
        layout.sleep("cache", to=file)
        assert old.read() == b"mine"
    assert file.stat().st_size == 4 * HALF
    layout.wake()
    assert not file.exists()


@needs_root
def test_a_file_system_that_gives_our_files_to_others_is_refused(layout: Layout) -> None:
    """As NFS does with those of root."""
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        libc.setfsuid(NOBODY)
        try:
            with pytest.raises(ApplyError, match=r"HP416(.|\n)*its file system does not keep a file from other users"):
                layout.sleep("cache", to=f"{folder}/copy.bin")
        finally:
            libc.setfsuid(0)
        assert layout.asleep == {}
        assert names(Path(folder)) == []


@pytest.mark.parametrize(("plant", "why"), PLANTED)
def test_what_another_user_could_have_put_there_does_not_wake(
    plant: Changes, why: str, layout: Layout, sim: Simulator, file: Path
) -> None:
    layout.sleep("weights", to=file)
    layout.sleep("cache", to=file.with_name("other.bin"))
    file.unlink()
    plant(file)
    before = file.read_bytes()
    with pytest.raises(ApplyError, match=rf"HP416(.|\n)*the copy of 'weights' has changed(.|\n)*{why}"):
        layout.wake()
    assert layout.asleep == {"weights": "file", "cache": "file"}
    layout.wake("cache")
    assert file.read_bytes() == before
    file.unlink()
    restore(layout, file)
    layout.wake()
    require_bytes(layout, sim)


def restore(layout: Layout, file: Path) -> None:
    """Does what the error says."""
    with pytest.raises(ApplyError) as caught:
        layout.wake()
    (line,) = re.findall(r"this restores it: (install .*); then wake again", caught.value.diagnostics[0].hint)
    assert str(file) in line
    subprocess.run(line, shell=True, check=True)


def test_a_kept_file_of_memory_that_is_gone_is_written_over(layout: Layout, sim: Simulator, file: Path) -> None:
    layout.sleep("cache", to=file)
    layout.wake(retain=True)
    layout.shrink("cache", by="64KiB")
    layout.sleep("cache", to=file)
    assert file.stat().st_size == 64 << 10
    layout.wake()
    require_bytes(layout, sim, "cache")


def test_a_copy_in_another_place_is_not_called_absent(layout: Layout, file: Path) -> None:
    layout.sleep(["weights", "cache"], to=file)
    layout.wake(retain=True)
    says = r"the copy of 'cache' that was kept cannot be used\n.*in another place, or in one file with other memory"
    for place in (file, file.with_name("other.bin"), "host"):
        with pytest.raises(ApplyError, match=says):
            layout.sleep("cache", to=place, unchanged="cache")
    assert layout.asleep == {}


def test_a_file_that_lost_its_rights_gets_them_back(layout: Layout, sim: Simulator, file: Path) -> None:
    layout.sleep("weights", to=file)
    file.chmod(0o640)
    with pytest.raises(ApplyError, match=rf"HP416(.|\n)*its mode is 0640\n  hint: chmod 600 {file}, then wake again"):
        layout.wake()
    file.chmod(0o600)
    layout.wake()
    require_bytes(layout, sim)


@pytest.mark.parametrize("at", [0, 4 * HALF - 1])
def test_a_flipped_byte_is_refused_and_the_rest_wakes(at: int, layout: Layout, sim: Simulator, file: Path) -> None:
    layout.sleep(["cache", "weights"], to=file)
    flip(file, at)
    with pytest.raises(ApplyError, match=r"HP443.*the copy of 'cache' has changed") as caught:
        layout.wake()
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["HP443"]
    assert layout.asleep == {"cache": "file", "weights": "file"}
    layout.wake("weights")
    require_bytes(layout, sim, "weights")
    flip(file, at)
    layout.wake()
    require_bytes(layout, sim)


def test_files_that_were_swapped_are_refused(layout: Layout, sim: Simulator, file: Path) -> None:
    other, third = file.with_name("other.bin"), file.with_name("third.bin")
    layout.sleep("weights", to=file)
    layout.sleep("cache", to=other)
    for _ in range(2):
        file.rename(third)
        other.rename(file)
        third.rename(other)
        if file.read_bytes()[:1] == b"\5":
            for name in BYTES:
                with pytest.raises(ApplyError, match=rf"HP443.*the copy of '{name}' has changed"):
                    layout.wake(name)
    layout.wake()
    require_bytes(layout, sim)
    assert names(file.parent) == []


@pytest.mark.parametrize("checksum", [None, False])
def test_a_file_that_was_replaced_is_refused_unless_its_checksum_is_right(
    checksum: bool | None, layout: Layout, sim: Simulator, file: Path
) -> None:
    layout.sleep("cache", to=file, checksum=checksum)
    file.rename(first := file.with_name("first.bin"))
    file.write_bytes(b"\6" * (4 * HALF))
    file.chmod(0o600)
    with pytest.raises(ApplyError, match=r"HP443.*the copy of 'cache' has changed"):
        layout.wake()
    file.write_bytes(b"\5" * (4 * HALF))
    if checksum is False:
        with pytest.raises(ApplyError, match=r"is not the file that sleep\(\) wrote\n.*move the file .* back there"):
            layout.wake()
        first.rename(file)
    layout.wake()
    require_bytes(layout, sim, "cache")
    assert not file.exists()


@pytest.mark.parametrize("change", ["sleep", "update"])
def test_a_kept_file_goes_when_nothing_needs_it_and_another_one_stays(
    change: str, layout: Layout, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def forget() -> None:
        layout.sleep("cache", to=file)
        layout.wake(retain=True)
        if planted:
            file.rename(file.with_name("moved.bin"))
            file.write_text("another")
        if change == "sleep":
            layout.sleep("cache", to="drop")
            layout.wake()
        else:
            layout.update(PLAN | {"regions": {"weights": PLAN["regions"]["weights"]}}, lose="cache")
            layout.update(PLAN)

    planted = False
    forget()
    assert names(file.parent) == []
    planted = True
    forget()
    assert file.read_text() == "another"
    assert f"{file} is no longer needed and cannot be removed: another file has its name" in caplog.text


def test_a_kept_file_that_was_replaced_is_not_relied_on(layout: Layout, sim: Simulator, file: Path) -> None:
    layout.sleep("cache", to=file, checksum=False)
    layout.wake(retain=True)
    file.unlink()
    file.write_bytes(b"\6" * (4 * HALF))
    with pytest.raises(ApplyError, match=r"HP416(.|\n)*its mode is"):
        layout.sleep("cache", to=file, unchanged="cache")
    file.chmod(0o600)
    with pytest.raises(ApplyError, match=r"HP443(.|\n)*is not the file that sleep\(\) wrote\n  hint: leave unchanged="):
        layout.sleep("cache", to=file, unchanged="cache")
    assert layout.asleep == {}
    layout.sleep("cache", to=file)
    layout.wake()
    require_bytes(layout, sim, "cache")


def test_two_layouts_do_not_take_the_bytes_of_one_another(layout: Layout, sim: Simulator, file: Path) -> None:
    with hipplan.apply(PLAN, runtime="sim") as other:
        layout.sleep("cache", to=file)
        other.fill("cache", 9)
        other.sleep("cache", to=file)
        with pytest.raises(ApplyError, match=r"HP443.*the copy of 'cache' has changed"):
            layout.wake()
        other.wake()
        assert sim.read(other["cache"].address, 1) == b"\x09"
        restore(layout, file)
        layout.wake()
        require_bytes(layout, sim, "cache")


def test_a_sleep_that_is_rolled_back_leaves_no_file(layout: Layout, sim: Simulator, file: Path) -> None:
    sim.runtime.arm_faults("hipMemUnmap@3=hipErrorUnknown")  # the first are the probe's
    with pytest.raises(ApplyError, match=r"HP401.*hipMemUnmap"):
        layout.sleep("cache", to=file)
    sim.runtime.arm_faults("")
    assert names(file.parent) == []
    assert held_open(file.parent) == []
    require_bytes(layout, sim)


def test_closing_keeps_the_file_and_no_descriptor_of_it(sim: Simulator, file: Path) -> None:
    with hipplan.apply(PLAN, runtime="sim") as layout:
        layout.sleep(["weights", "cache"], to=file)
        assert len(held_open(file.parent)) == 1
    assert held_open(file.parent) == []
    assert file.stat().st_size == 8 * HALF


CHUNKS = 40
LARGE: dict[str, Any] = {"hipplan": 1, "devices": {"gpu": {"count": 2}}}
SPREADS: dict[str, dict[str, Any]] = {
    "on one device": {"device": "gpu.0"},
    "interleaved": {"devices": ["gpu.*"], "spread": "interleave"},
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("chunk", [0, 33, CHUNKS - 1])
def test_each_of_many_chunks_has_a_checksum_in_a_file(chunk: int, spread: str, sim: Simulator, file: Path) -> None:
    region = {"size": CHUNKS * 2 * HALF, "chunk": "64KiB", **SPREADS[spread]}
    with hipplan.apply(LARGE | {"regions": {"cache": region}}, runtime="sim") as layout:
        place = layout["cache"]
        for number in range(CHUNKS):
            sim.fill(place.address + number * 2 * HALF, number + 1, 2 * HALF)
        for _ in range(2):
            layout.sleep("cache", to=file)
            flip(file, at := chunk * 2 * HALF + HALF)
            with pytest.raises(ApplyError, match=r"HP443.*the copy of 'cache' has changed"):
                layout.wake()
            flip(file, at)
            layout.wake(retain=True)
        layout.sleep("cache", to=file, unchanged="cache")
        layout.wake()
        for number in range(CHUNKS):
            assert sim.read(place.address + number * 2 * HALF, 2 * HALF) == bytes([number + 1]) * 2 * HALF
