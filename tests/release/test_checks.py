"""What tools/release_checks.py refuses: each check with a file that has one thing wrong."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import hipplan
from tests.release.conftest import FOLDER, INFO, PROCESSOR, Change, changed
from tools import release_checks as checks
from tools.release_checks import Source

pytestmark = pytest.mark.skipif(
    "HIPPLAN_SANITIZER" in os.environ, reason="a library with a sanitizer needs that sanitizer's, which is refused"
)


def replaced(name: str, old: bytes, new: bytes) -> Change:
    def change(content: dict[str, bytes]) -> None:
        assert old in content[name], f"{name} has no {old!r}"
        content[name] = content[name].replace(old, new)

    return change


def left_out(name: str) -> Change:
    return lambda content: content.pop(name) and None


def added(name: str, data: bytes = b"") -> Change:
    return lambda content: content.update({name: data})


def test_the_wheels_of_this_repository_are_accepted(pure: Path, full: Path, source: Source) -> None:
    assert checks.file_faults(pure, source) == []
    assert checks.file_faults(full, source) == []


METADATA, LICENCE = f"{INFO}/METADATA", f"{INFO}/licenses/LICENSE"
INIT, PKG_CONFIG = "hipplan/__init__.py", "hipplan/pkgconfig/hipplan.pc"
CMAKE = "hipplan/cmake/hipplan/hipplan-config-version.cmake"
LINKS_WITHOUT_ISSUES = (
    f"\nProject-URL: Repository, https://a.example/b"
    f"\nProject-URL: Changelog, https://a.example/b/blob/v{hipplan.__version__}/CHANGELOG.md"
).encode()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (left_out("hipplan/libhipcuda.so"), "hipplan/libhipcuda.so is missing"),
        (left_out("hipplan/include/hipplan.h"), "hipplan/include/hipplan.h is missing"),
        (left_out("hipplan/machines/sim-2.yaml"), "hipplan/machines/sim-2.yaml is missing"),
        (left_out(LICENCE), f"{LICENCE} is missing"),
        (left_out(f"{INFO}/entry_points.txt"), f"{INFO}/entry_points.txt is missing"),
        (added("hipplan/notes.txt"), "hipplan/notes.txt does not belong there; is it new? "
         "Then tools/release_checks.py must know it"),
        (added("hipplan.libs/libamdhip64.so.7"), "hipplan.libs/libamdhip64.so.7 does not belong there"),
        (replaced(LICENCE, b"MIT", b"GPL"), f"{LICENCE} is not the repository's LICENSE"),
        (replaced(METADATA, b"\nVersion: ", b"\nVersion: 9."), "the metadata has Version: 9."),
        (replaced(METADATA, b"Expression: MIT", b"Expression: BSD"), "the metadata has License-Expression: BSD; it m"),
        (replaced(METADATA, b"\nName: hipplan", b"\nName: hiplan"), "the metadata has Name: hiplan; it must be hip"),
        (replaced(METADATA, b"\nProject-URL: ", LINKS_WITHOUT_ISSUES + b"\nProject-URL: "),
         "the metadata has the project link Issues: None; it must be https://a.example/b/issues"),
        (replaced(INIT, b'__version__ = "', b'__version__ = "9.'), f"{INIT} has no line __version__"),
        (replaced(PKG_CONFIG, b"Version: ", b"Version: 9."), f"{PKG_CONFIG} has no line Version: "),
        (replaced(CMAKE, b'VERSION "', b'VERSION "9.'), f"{CMAKE} has no line set(PACKAGE_VERSION"),
    ],
)  # fmt: skip
def test_a_wheel_with_one_fault_is_refused_for_it(
    change: Change, fault: str, full: Path, source: Source, tmp_path: Path
) -> None:
    (only,) = checks.file_faults(changed(full, change, tmp_path), source)

    assert only.startswith(f"{full.name}: {fault}")


def test_a_pure_wheel_with_a_compiled_part_is_refused(pure: Path, source: Source, tmp_path: Path) -> None:
    wheel = changed(pure, added("hipplan/libhipsim.so", (FOLDER / "libhipsim.so").read_bytes()), tmp_path)
    (only,) = checks.file_faults(wheel, source)

    assert "hipplan/libhipsim.so does not belong there" in only


@pytest.mark.parametrize(
    "end",
    [
        f"-cp312-cp312-linux_{PROCESSOR}.whl",  # not repaired
        "-cp312-cp312-manylinux_2_28_riscv64.whl",
        "-cp312-abi3-manylinux_2_28_x86_64.whl",
        ".zip",
    ],
)
def test_a_name_that_no_release_has_is_refused(end: str, full: Path, source: Source, tmp_path: Path) -> None:
    file = tmp_path / f"hipplan-{source.version}{end}"
    shutil.copy(full, file)
    (only,) = checks.file_faults(file, source)

    assert only.startswith(f"{file.name}: files of {source.version} are hipplan-{source.version}.tar.gz, ")


def test_a_name_with_another_version_is_refused(full: Path, source: Source, tmp_path: Path) -> None:
    file = tmp_path / full.name.replace(source.version, "9.0.0")
    shutil.copy(full, file)

    assert checks.file_faults(file, source)[0].startswith(f"{file.name}: files of {source.version} are")


def test_a_path_of_the_build_is_refused(full: Path, source: Source, tmp_path: Path) -> None:
    path = b"/srv/somebody/build"
    end = lambda content: content.update({"hipplan/libhipsim.so": content["hipplan/libhipsim.so"] + path})  # noqa: E731
    wheel = changed(full, end, tmp_path)
    (only,) = checks.file_faults(wheel, source, [Path("/srv/somebody")])

    assert only.endswith("hipplan/libhipsim.so has the path /srv/somebody, where it was built: nobody else has it")
    assert checks.file_faults(wheel, source, [Path("/srv/somebody-else")]) == []


def test_a_file_that_is_not_what_record_says_is_refused(full: Path, source: Source, tmp_path: Path) -> None:
    wheel = tmp_path / full.name
    content = checks.members(full)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data + b"\n" if name == "hipplan/api.py" else data)

    assert checks.file_faults(wheel, source) == [f"{wheel.name}: hipplan/api.py is not what RECORD says"]


def test_a_library_that_needs_a_gpu_library_is_refused(full: Path, source: Source, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("needs cc")
    empty = tmp_path / "empty.c"
    empty.write_text("void nothing(void) {}\n")
    gpu, library = tmp_path / "libamdhip64.so.7", tmp_path / "library.so"
    cc = ["cc", "-shared", "-fPIC", str(empty)]
    subprocess.run([*cc, "-Wl,-soname,libamdhip64.so.7", "-o", gpu], check=True)
    subprocess.run([*cc, "-Wl,--no-as-needed", str(gpu), "-o", library], check=True)
    wheel = changed(full, added("hipplan/libhipcuda.so", library.read_bytes()), tmp_path)

    assert checks.file_faults(wheel, source) == [
        f"{wheel.name}: hipplan/libhipcuda.so needs libamdhip64.so.7, which not every Linux has"
    ]


def sdist(folder: Path, source: Source, **changes: bytes) -> Path:
    """With the files of the source as its archive has them, and `changes` to some."""
    file = folder / f"hipplan-{source.version}.tar.gz"
    metadata = f"Name: hipplan\nVersion: {source.version}\nLicense-Expression: MIT\nLicense-File: LICENSE\n".encode()
    content = dict.fromkeys(source.tracked, b"") | {"PKG-INFO": metadata, "LICENSE": source.licence}
    content["hipplan/__init__.py"] = f'__version__ = "{source.version}"\n'.encode()
    with tarfile.open(file, "w:gz") as archive:
        for name, data in (content | changes).items():
            info = tarfile.TarInfo(f"hipplan-{source.version}/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file


def test_an_sdist_has_every_file_that_git_knows_and_no_other(source: Source, tmp_path: Path) -> None:
    assert checks.file_faults(sdist(tmp_path, source), source) == []

    (more,) = checks.file_faults(sdist(tmp_path, source, secret=b""), source)
    assert "secret does not belong there" in more

    smaller = Source(source.version, source.tracked | {"cpp/forgotten.cpp"}, source.licence)
    assert checks.file_faults(sdist(tmp_path, source), smaller) == [
        f"hipplan-{source.version}.tar.gz: cpp/forgotten.cpp is missing"
    ]


def test_an_sdist_with_another_licence_is_refused(source: Source, tmp_path: Path) -> None:
    (only,) = checks.file_faults(sdist(tmp_path, source, LICENSE=b"All rights reserved."), source)

    assert only.endswith("LICENSE is not the repository's LICENSE")


def test_files_with_different_bytes_are_refused_with_the_first_that_differs(pure: Path, tmp_path: Path) -> None:
    other = changed(pure, replaced("hipplan/api.py", b"import", b"improt"), tmp_path)
    faults = checks.differences(pure, other)

    assert checks.differences(pure, pure) == []
    assert any(fault.startswith(f"{pure.name}, built twice: hipplan/api.py differs from byte ") for fault in faults)
    assert any("import" in fault and "improt" in fault for fault in faults)


def test_a_file_in_one_of_the_two_is_named(pure: Path, tmp_path: Path) -> None:
    faults = checks.differences(pure, changed(pure, added("hipplan/new.py"), tmp_path))

    assert f"{pure.name}, built twice: hipplan/new.py is only in one of the two" in faults


@pytest.mark.parametrize("what", ["modes", "times", "order"])
def test_archives_that_differ_in_what_is_around_the_files_are_refused(what: str, pure: Path, tmp_path: Path) -> None:
    files = [tmp_path / "first" / pure.name, tmp_path / "second" / pure.name]
    for file in files:
        file.parent.mkdir()
        with zipfile.ZipFile(pure) as wheel, zipfile.ZipFile(file, "w") as copy:
            members = wheel.infolist()
            if file == files[1] and what == "order":
                members = members[::-1]
            for info in members:
                data = wheel.read(info)
                if file == files[1] and what == "modes":
                    info.external_attr = 0o100600 << 16
                if file == files[1] and what == "times":
                    info.date_time = (1999, 12, 31, 23, 59, 58)
                copy.writestr(info, data)
    (only,) = checks.differences(*files)

    assert only.startswith(f"{pure.name}, built twice: the order, times or modes of the files differ, first at ")


@pytest.mark.parametrize(
    ("text", "final", "fault"),
    [
        ("# Changes\n\n## 0.2.0, 2026-12-01\n", True, ""),
        ("# Changes\n\n## 0.2.0, not yet released\n", False, ""),
        ("# Changes\n\n## 0.2.0, not yet released\n", True, "CHANGELOG.md says that 0.2.0 is not yet released"),
        ("# Changes\n\n## 0.1.0, 2026-12-01\n", False, "CHANGELOG.md begins with '## 0.1.0, 2026-12-01', but this"),
        ("# Changes\n\n## 0.2.0, soon\n\n## 0.1.0, 2026-12-01\n", False, "CHANGELOG.md has '## 0.2.0, soon'"),
        ("# Changes\n\n## 0.2.0, 2026-13-01\n", True, "CHANGELOG.md has '## 0.2.0, 2026-13-01'"),
        ("# Changes\n", False, "CHANGELOG.md begins with '## '"),
    ],
)
def test_the_changelog_must_begin_with_the_release(text: str, final: bool, fault: str) -> None:
    faults = list(checks.changelog_faults(text, "0.2.0", final=final))

    assert len(faults) == bool(fault)
    assert all(one.startswith(fault) for one in faults)
