"""Files that another user may have put there: nothing is written to them, or through them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import hipplan as library
from hipplan.cli import main
from hipplan.errors import HipplanError
from hipplan.files.output import replacing, write_document
from hipplan.files.places import NameInFolder, UnsafeFile
from tests.cli.conftest import command
from tests.conftest import ROOT, Simulator
from tests.descriptors import descriptors

QUICKSTART = ROOT / "plans" / "quickstart.yaml"
CHECKPOINT = ROOT / "plans" / "data" / "layer.safetensors"
SMALL = {"hipplan": 1, "buffers": {"b": {"kind": "device", "size": 64}}}
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")


def saved(file: Path) -> None:
    with library.apply(SMALL, runtime="sim") as layout:
        layout.save("b", file)


def recorded(file: Path) -> None:
    library.apply(SMALL, runtime="sim", record=file).close()


def written(file: Path) -> None:
    write_document(str(file), "text", "the lock")


def by_command(*line: object) -> Callable[[Path], list[str]]:
    """The arguments of a command; FILE in them is the file."""
    return lambda file: [str(word).replace("FILE", str(file)) for word in line]


WRITES: dict[str, Callable[[Path], list[str] | None]] = {
    "lock": by_command("lock", QUICKSTART, "--machine", "sim-2", "-o", "FILE"),
    "import": by_command("import", "safetensors", CHECKPOINT, "-o", "FILE"),
    "fmt": by_command("fmt", "--write", "FILE"),
    "draw": by_command("draw", QUICKSTART, "--machine", "sim-2", "-o", "FILE"),
    "apply --save": by_command("apply", QUICKSTART, "--once", "--runtime", "sim", "--save", "staging=FILE"),
    "save": saved,
    "record": recorded,
}


def refused(writes: Callable[[Path], list[str] | None], file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Why a file was not written."""
    try:
        line = writes(file)
    except HipplanError as error:
        text = str(error)
    else:
        assert line is not None, "it was written"
        assert main.run(line) == 2
        text = capsys.readouterr().err
    assert "error[HP416]" in text
    return text


@pytest.fixture
def everybodys(tmp_path: Path) -> Path:
    """A folder such as /tmp."""
    folder = tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def anothers(tmp_path: Path) -> Path:
    """A file of another user."""
    if os.geteuid() != 0:
        return Path("/etc/passwd")
    file = tmp_path / "anothers.svg"
    file.write_text("name:   x\nhipplan: 1\n")
    os.chown(file, NOBODY, NOBODY)
    return file


@pytest.mark.parametrize("what", WRITES)
def test_nothing_is_written_through_a_link(
    what: str, everybodys: Path, tmp_path: Path, sim: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    victim, link = tmp_path / "victim.svg", everybodys / "link.svg"
    victim.write_text("name:   x\nhipplan: 1\n")
    link.symlink_to(victim)

    assert f"it is a link\n  hint: name the file itself: {victim}" in refused(WRITES[what], link, capsys)
    assert victim.read_text() == "name:   x\nhipplan: 1\n"
    assert [*everybodys.iterdir()] == [link]
    victim.unlink()
    if what != "fmt":  # it reads the plan first
        assert "it is a link" in refused(WRITES[what], link, capsys)
        assert not victim.exists()


@pytest.mark.parametrize("what", WRITES)
def test_a_file_of_another_user_is_not_replaced(
    what: str, anothers: Path, sim: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    before = anothers.read_text(), anothers.stat()
    if what in ("fmt", "draw", "record") and os.geteuid() != 0:
        pytest.skip("needs root, to make a file of another user that is a plan, a picture, or can be opened")

    assert f"it belongs to another user, {before[1].st_uid}" in refused(WRITES[what], anothers, capsys)
    assert (anothers.read_text(), anothers.stat().st_ino) == (before[0], before[1].st_ino)


@needs_root
@pytest.mark.parametrize("deeper", ["", "/deeper"])
def test_links_of_another_user_are_not_followed_where_everybody_can_make_them(
    deeper: str, everybodys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder in /tmp may be a link into the folder of the one who names it."""
    home = tmp_path / "home"
    (home / "deeper").mkdir(parents=True)
    (link := everybodys / "folder").symlink_to(home)
    os.lchown(link, NOBODY, NOBODY)
    (everybodys / "indirect").symlink_to(link)
    for name in ("folder", "indirect", "../everybodys/folder"):
        path = Path(f"{everybodys}/{name}{deeper}/document")
        why = refused(written, path, capsys)
        assert f"'folder' on the way there is a link of another user, {NOBODY}" in why
    assert [*(home / "deeper").iterdir()] == []
    everybodys.chmod(0o755)  # the link could have been made by the folder's owner alone
    written(Path(f"{link}{deeper}/document"))
    assert Path(f"{home}{deeper}/document").read_text() == "text"


def test_links_of_this_user_to_folders_are_followed(everybodys: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (everybodys / "link").symlink_to("../home")
    (tmp_path / "absolute").symlink_to(everybodys / "link")
    write_document(f"{tmp_path}/absolute/../home//./document", "text", "the lock")
    assert (tmp_path / "home" / "document").read_text() == "text"


def test_a_record_is_not_written_over_a_file_with_several_names(
    everybodys: Path, tmp_path: Path, sim: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "victim").write_text("victim")
    (everybodys / "record").hardlink_to(tmp_path / "victim")
    assert "it has other names, too: hard links" in refused(recorded, everybodys / "record", capsys)
    saved(everybodys / "record")  # a new file takes the name
    assert (tmp_path / "victim").read_text() == "victim"


@needs_root
def test_a_pipe_of_another_user_gets_nothing(
    everybodys: Path, sim: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(pipe := everybodys / "pipe")
    os.chown(pipe, NOBODY, NOBODY)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for writes in (recorded, written):
        assert "it belongs to another user" in refused(writes, pipe, capsys)
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize("comes", ["link", "another's file"])
def test_what_comes_while_a_file_is_written_is_not_replaced(comes: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    (tmp_path / "victim").write_text("victim")
    if comes != "link" and os.geteuid() != 0:
        pytest.skip("needs root, to make files of another user")
    with pytest.raises(UnsafeFile), replacing(str(file)) as descriptor:
        os.write(descriptor, b"new")
        if comes == "link":
            file.symlink_to(tmp_path / "victim")
        else:
            file.write_text("another's")
            os.chown(file, NOBODY, NOBODY)
    assert (tmp_path / "victim").read_text() == "victim"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "victim"]
    assert file.read_text() == ("victim" if comes == "link" else "another's")


def test_a_file_stays_in_the_folder_that_was_there_at_first(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with replacing(str(tmp_path / "folder" / "file")) as descriptor:
        os.write(descriptor, b"new")
        (tmp_path / "folder").rename(tmp_path / "moved")
        (tmp_path / "folder").mkdir()
    assert (tmp_path / "moved" / "file").read_bytes() == b"new"
    assert [*(tmp_path / "folder").iterdir()] == []


def test_standard_output_may_be_a_file(tmp_path: Path) -> None:
    line = ["lock", str(QUICKSTART), "--machine", "sim-2", "-o"]
    with (tmp_path / "shown").open("wb") as shown:
        shown.write(b"before\n")
        shown.flush()
        assert subprocess.run(command(*line, "/dev/stdout"), stdout=shown, timeout=600).returncode == 0
    assert main.run([*line, str(tmp_path / "lock")]) == 0
    assert (tmp_path / "shown").read_text() == "before\n" + (tmp_path / "lock").read_text()


def test_a_place_closes_its_folder(tmp_path: Path) -> None:
    before = descriptors()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    with NameInFolder(str(tmp_path / "file")) as place:
        assert place.require_ours() is not None
    for path in ("loop/file", "file/file", "none/file"):
        with pytest.raises(OSError):
            NameInFolder(str(tmp_path / path))
    assert descriptors() == before
