"""What the files of a release must be. Each check returns a sentence for each thing that is wrong.

A file is refused unless all of this holds:

- its name and its metadata have the version of hipplan/__init__.py, and the project links are complete or absent;
- the licence in it is the repository's;
- it has exactly the files that it must have: none is missing, none is left over;
- no file in it names the folder that it was built in;
- the libraries in it need nothing but what every Linux has, so that they load where no GPU library is installed;
- it was built twice, in two folders, and both results have the same bytes.
"""

from __future__ import annotations

import base64
import csv
import datetime
import hashlib
import re
import tarfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from io import BytesIO, StringIO
from pathlib import Path

COMPILED = (
    "libhipcuda.so",
    "libhipplan.so",
    "libhipsim.so",
    "libhipsim_refuse_abi_5.so",
    "cmake/hipplan/hipplan-config-version.cmake",
    "cmake/hipplan/hipplan-config.cmake",
    "include/hipplan.h",
    "pkgconfig/hipplan.pc",
)
"""What the build adds to the folder hipplan of a wheel, beside the module itself."""
COMPILED_ON = {"x86_64": ("libkfdsim.so",), "aarch64": ()}
"""Processor -> what is built there alone. A wheel for another processor is refused."""
ONLY_IN_FULL_WHEELS = "_core.pyi"
ON_EVERY_LINUX = re.compile(r"(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|ld-linux[\w-]*)\.so\.\d+")
"""What PEP 600 allows a manylinux wheel to need, as far as hipplan needs it."""
LINKS = {"Repository": "", "Issues": "/issues", "Changelog": "/blob/v{version}/CHANGELOG.md"}
"""Label of a project link -> what follows the address of the repository."""
UNRELEASED = "not yet released"


@dataclass(frozen=True)
class Source:
    """What the files of a release are compared with: the repository that they are made from."""

    version: str
    tracked: frozenset[str]
    """The paths of all files that git knows, from the root."""
    licence: bytes


def version_of(init: str) -> str:
    """The version that the text of hipplan/__init__.py sets: its one place. ValueError if it sets none."""
    match = re.search(r'^__version__ = "(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)"$', init, re.M)
    if match is None:
        raise ValueError('hipplan/__init__.py has no line such as __version__ = "0.1.0"')
    return match[1]


def is_wheel(file: Path) -> bool:
    return file.suffix == ".whl"


def is_pure(file: Path) -> bool:
    return file.name.endswith("-py3-none-any.whl")


def members(file: Path) -> dict[str, bytes]:
    """Path -> bytes of each file in a wheel or an sdist; those of an sdist without its top folder."""
    if is_wheel(file):
        with zipfile.ZipFile(file) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(file) as sdist:
        top = file.name.removesuffix(".tar.gz")
        return {
            item.name.removeprefix(f"{top}/"): stream.read()
            for item in sdist
            if (stream := sdist.extractfile(item)) is not None
        }


def outline(file: Path) -> list[str]:
    """The files of a wheel or an sdist in their order, each with its mode and time."""
    if is_wheel(file):
        with zipfile.ZipFile(file) as wheel:
            return [f"{item.filename} {item.external_attr >> 16:o} {item.date_time}" for item in wheel.infolist()]
    with tarfile.open(file) as sdist:
        return [f"{item.name} {item.mode:o} {item.mtime} {item.uname}" for item in sdist]


def changelog_faults(text: str, version: str, *, final: bool) -> Iterator[str]:
    """CHANGELOG.md must begin with the version that is released; with its date if the release is final."""
    heading = next(iter(re.findall(r"^## (.*)$", text, re.M)), "")
    named, _, when = heading.partition(", ")
    if named != version:
        yield f"CHANGELOG.md begins with '## {heading}', but this is {version}: write a section '## {version}, DATE'"
    elif when == UNRELEASED and final:
        yield f"CHANGELOG.md says that {version} is {UNRELEASED}: write the date, as '## {version}, 2026-12-31'"
    elif when != UNRELEASED and not _is_date(when):
        yield f"CHANGELOG.md has '## {heading}': write a date after the version, or '{UNRELEASED}'"


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def file_faults(file: Path, source: Source, forbidden: Collection[Path] = ()) -> list[str]:
    """Everything that is wrong with one file.

    Args:
        file: a wheel or an sdist.
        source: the repository that it is made from.
        forbidden: folders of the build, whose paths must not be in the file.
    """
    if fault := name_fault(file, source.version):
        return [fault]  # the other checks would only repeat it
    content = members(file)
    info = f"hipplan-{source.version}.dist-info/" if is_wheel(file) else ""
    metadata = content.get(f"{info}METADATA" if info else "PKG-INFO", b"")
    faults = [
        *contents_faults(file, set(content), source),
        *metadata_faults(BytesParser().parsebytes(metadata), source.version),
        *licence_faults(content, f"{info}licenses/LICENSE" if info else "LICENSE", source.licence),
        *version_faults(content, source.version),
        *path_faults(content, forbidden),
    ]
    if info:
        faults += [*record_faults(content, f"{info}RECORD"), *library_faults(content)]
    return [f"{file.name}: {fault}" for fault in faults]


def name_fault(file: Path, version: str) -> str:
    """What is wrong with the name of a file; empty if nothing is."""
    wheel = rf"cp\d+-cp\d+t?-manylinux_2_\d+_({'|'.join(COMPILED_ON)})"
    if re.fullmatch(rf"hipplan-{re.escape(version)}(\.tar\.gz|-py3-none-any\.whl|-{wheel}\.whl)", file.name):
        return ""
    return f"{file.name}: files of {version} are hipplan-{version}.tar.gz, …-py3-none-any.whl and …-manylinux_2_N_….whl"


def contents_faults(file: Path, names: Collection[str], source: Source) -> Iterator[str]:
    """The names of the files in a wheel or an sdist are exactly those that must be there."""
    wanted = set(_wanted(file, source))
    for name in sorted(wanted - set(names)):
        yield f"{name} is missing"
    for name in sorted(set(names) - wanted):
        yield f"{name} does not belong there; is it new? Then tools/release_checks.py must know it"


def _wanted(file: Path, source: Source) -> Iterator[str]:
    if not is_wheel(file):
        yield from source.tracked
        yield "PKG-INFO"
        return
    left_out = {f"hipplan/{ONLY_IN_FULL_WHEELS}"} if is_pure(file) else set()
    yield from (name for name in source.tracked - left_out if name.startswith("hipplan/"))
    info = f"hipplan-{source.version}.dist-info"
    yield from (f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"))
    if not is_pure(file):
        _, _, _, abi, platform = file.stem.split("-")
        processor = next(name for name in COMPILED_ON if platform.endswith(name))
        cpython = abi.replace("cp", "cpython-")
        yield f"hipplan/_core.{cpython}-{processor}-linux-gnu.so"
        yield from (f"hipplan/{name}" for name in (*COMPILED, *COMPILED_ON[processor]))


def metadata_faults(metadata: Message, version: str) -> Iterator[str]:
    """The metadata has the project's name, version and licence, and all project links of one repository, or none."""
    fixed = {"Name": "hipplan", "Version": version, "License-Expression": "MIT", "License-File": "LICENSE"}
    for key, value in fixed.items():
        if metadata[key] != value:
            yield f"the metadata has {key}: {metadata[key]}; it must be {value}"
    links = dict(link.split(", ", 1) for link in metadata.get_all("Project-URL", []))
    repository = links.get("Repository", "")
    for label, end in LINKS.items():
        wanted = repository + end.format(version=version) if repository else None
        if links.get(label) != wanted:
            yield f"the metadata has the project link {label}: {links.get(label)}; it must be {wanted}"


def licence_faults(content: Mapping[str, bytes], name: str, licence: bytes) -> Iterator[str]:
    """The licence is the repository's, to the byte."""
    if content.get(name, licence) != licence:  # that it is missing is a fault of the contents
        yield f"{name} is not the repository's LICENSE"


def version_faults(content: Mapping[str, bytes], version: str) -> Iterator[str]:
    """All files that have the version have the same one."""
    places = {
        "hipplan/__init__.py": f'__version__ = "{version}"',
        "hipplan/cmake/hipplan/hipplan-config-version.cmake": f'set(PACKAGE_VERSION "{version}")',
        "hipplan/pkgconfig/hipplan.pc": f"Version: {version}",
    }
    for name, line in places.items():
        if name in content and line not in content[name].decode().splitlines():
            yield f"{name} has no line {line}"


def path_faults(content: Mapping[str, bytes], forbidden: Collection[Path]) -> Iterator[str]:
    """No file names the folder that it was built in."""
    for name, data in sorted(content.items()):
        for folder in forbidden:
            if str(folder).encode() in data:
                yield f"{name} has the path {folder}, where it was built: nobody else has it"


def record_faults(content: Mapping[str, bytes], name: str) -> Iterator[str]:
    """RECORD has the SHA-256 and the size of each file of a wheel (the specification of binary distributions)."""
    rows = {row[0]: row[1:] for row in csv.reader(StringIO(content.get(name, b"").decode()))}
    for path, data in sorted(content.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if path != name and rows.get(path) != [f"sha256={digest}", str(len(data))]:
            yield f"{path} is not what RECORD says"


def library_faults(content: Mapping[str, bytes]) -> Iterator[str]:
    """A library needs only what every Linux has, or what lies beside it."""
    from elftools.elf.elffile import ELFFile  # type: ignore[import-untyped]

    beside = {Path(name).name for name in content}
    for name, data in sorted(content.items()):
        if Path(name).suffix != ".so":
            continue
        dynamic = ELFFile(BytesIO(data)).get_section_by_name(".dynamic")
        for tag in dynamic.iter_tags("DT_NEEDED"):
            if tag.needed not in beside and not ON_EVERY_LINUX.fullmatch(tag.needed):
                yield f"{name} needs {tag.needed}, which not every Linux has"


def differences(first: Path, second: Path) -> list[str]:
    """How two files that must have the same bytes differ; empty if they do not."""
    if first.read_bytes() == second.read_bytes():
        return []
    old, new = members(first), members(second)
    faults = [f"{name} is only in one of the two" for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            at = next((i for i, (a, b) in enumerate(zip(old[name], new[name], strict=False)) if a != b), len(old[name]))
            faults.append(f"{name} differs from byte {at} on: {_around(old[name], at)} and {_around(new[name], at)}")
    if not faults:
        pairs = zip(outline(first), outline(second), strict=True)
        one, other = next((pair for pair in pairs if pair[0] != pair[1]), ("the compressed bytes", "other ones"))
        faults = [f"the order, times or modes of the files differ, first at {one} and {other}"]
    return [f"{first.name}, built twice: {fault}" for fault in faults]


def _around(data: bytes, at: int) -> str:
    """Some bytes as text, for somebody who looks for the reason."""
    return repr(data[max(0, at - 20) : at + 40])
