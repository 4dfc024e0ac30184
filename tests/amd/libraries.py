"""AMD's own libraries, made ready: Debian's packages in build/amd, and the machine that they find below them.

Nothing is installed. Packages are pinned in packages.lock by version and SHA-256. Debian keeps no old version in sid
and experimental: where one is gone, the newest of the same release is taken instead, and `Ready.moved` says so.

python -m tests.amd.libraries          makes them ready
python -m tests.amd.libraries --lock   writes packages.lock anew, with what the archive has now
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hipplan.machines import gpus, sysfs, topology, without_gpu
from hipplan.machines.profiles import load_machine

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = Path(os.environ.get("HIPPLAN_AMD_FOLDER", ROOT / "build" / "amd"))
LOCK = HERE / "packages.lock"
MACHINE = HERE / "machine.yaml"
RELEASES = ("6.4", "7.2")
LIBRARIES = {"6.4": "libamdhip64.so.6", "7.2": "libamdhip64.so.7"}
RACES = ("6.4",)
"""Releases whose library spoils its own heap now and then where memory is unmapped behind small copies, in one of some
hundred sequences: a death there counts as one only if it comes again in a second process."""
NEEDED_GLIBC = (2, 38)
"""What Debian built these libraries against."""


class NotPossible(Exception):
    """Why AMD's libraries cannot be had on this machine, as one sentence."""


@dataclass(frozen=True)
class Package:
    """A line of packages.lock."""

    suite: str
    name: str
    version: str
    sha256: str
    folder: str
    """Where its libraries belong: a release, common or glibc; or tools/<release>, for a program with all its files."""

    @property
    def release(self) -> str:
        """The version up to its second number: what a substitute must share."""
        match = re.match(r"(?:\d+:)?\d+\.\d+", self.version)
        assert match, self
        return match[0]

    @property
    def is_of_tools(self) -> bool:
        return self.folder.startswith("tools/")

    @property
    def file(self) -> Path:
        return FOLDER / "deb" / f"{self.name}_{self.version.replace(':', '_')}.deb"


@dataclass(frozen=True)
class Ready:
    packages: tuple[Package, ...]
    moved: tuple[str, ...]
    """A sentence for each package that is not the pinned one."""
    namespace: bool
    """Whether this machine's C library is too old, so that commands need another one in a namespace of theirs."""

    def versions(self) -> dict[str, str]:
        return {f"{package.name} ({package.folder})": package.version for package in self.packages}


def make_ready() -> Ready:
    """Downloads, unpacks and builds what is not there yet. Raises NotPossible."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "busy").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)  # two runs at a time share the folder
        _check_machine()
        packages, moved = downloaded(_pinned())
        _unpack(packages)
        _build()
    needs = _glibc() < NEEDED_GLIBC
    if needs:
        _check_namespaces()
    return Ready(tuple(packages), tuple(moved), needs)


def environment(release: str) -> dict[str, str]:
    """What a process needs so that libamdhip64 of a release runs on the stand-in."""
    library = library_of(release)
    return {
        **without_gpu.environment(library, FOLDER / "machine"),
        "LD_LIBRARY_PATH": f"{library.parent}:{FOLDER}/lib/common",
        "HIPPLAN_AMD_RELEASE": release,
        "HIPPLAN_CONFORMANCE_RUNTIME": str(library),
    }


def library_of(release: str) -> Path:
    return FOLDER / "lib" / release / LIBRARIES[release]


def command(ready: Ready, arguments: Sequence[str]) -> list[str]:
    """The same command, with a C library that is new enough."""
    return [str(FOLDER / "enter"), str(FOLDER / "glibc"), *arguments] if ready.namespace else list(arguments)


# --- what the machine must have


def _check_machine() -> None:
    if os.uname().machine != "x86_64":
        raise NotPossible(f"Debian has AMD's libraries for x86_64 alone, and this machine is {os.uname().machine}")
    for tool, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("gcc", "gcc")):
        if not shutil.which(tool):
            raise NotPossible(f"there is no {tool}, which Debian and Ubuntu have in the package {package}")


def _glibc() -> tuple[int, ...]:
    text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return tuple(int(number) for number in re.findall(r"\d+", text))


def _check_namespaces() -> None:
    tried = subprocess.run([FOLDER / "enter", FOLDER / "glibc", "/bin/true"], capture_output=True, text=True)
    if tried.returncode:
        raise NotPossible(
            f"this machine's glibc is {'.'.join(map(str, _glibc()))} and AMD's libraries need 2.38: a newer one can be "
            f"put over it in a mount namespace, for which root or user namespaces are needed ({tried.stderr.strip()})"
        )


# --- packages


def _pinned() -> list[Package]:
    rows = (line.split() for line in LOCK.read_text().splitlines() if line and not line.startswith("#"))
    return [Package(*row) for row in rows]


def downloaded(pinned: Sequence[Package]) -> tuple[list[Package], list[str]]:
    """The packages as files, and what had to be another version."""
    if all(one.file.exists() and _sha256(one.file) == one.sha256 for one in pinned):
        return list(pinned), []
    archive = _Archive()
    got, moved = [], []
    for wanted in pinned:
        offered = archive.offers(wanted)
        if wanted.version not in offered:
            substitutes = [v for v in offered if replace(wanted, version=v).release == wanted.release]
            if not substitutes:
                gone = (
                    f"Debian's {wanted.suite} no longer has {wanted.name} {wanted.release} (it has "
                    f"{', '.join(offered) or 'none'}): bring tests/amd/packages.lock up to date"
                )
                if not wanted.is_of_tools:
                    raise NotPossible(gone)
                moved.append(f"{wanted.name} is left out: {gone}")
                continue
            moved.append(f"{wanted.name} is {substitutes[0]}: Debian no longer has the pinned {wanted.version}")
            wanted = replace(wanted, version=substitutes[0], sha256="")
        archive.download(wanted)
        if wanted.sha256 and _sha256(wanted.file) != wanted.sha256:
            wanted.file.unlink()
            raise NotPossible(f"{wanted.name} {wanted.version} is not the file that packages.lock pins by its SHA-256")
        got.append(wanted)
    return got, moved


class _Archive:
    """Debian's archive, by an apt of its own that leaves the machine's alone."""

    def __init__(self) -> None:
        if not list(Path("/usr/share/keyrings").glob("debian-archive-*")):
            raise NotPossible("apt cannot check Debian's signatures: install the package debian-archive-keyring")
        suites = ("trixie", "sid", "experimental")
        base = FOLDER / "apt"
        for folder in ("etc/apt.conf.d", "state/lists/partial", "cache/archives/partial"):
            (base / folder).mkdir(parents=True, exist_ok=True)
        (FOLDER / "deb").mkdir(exist_ok=True)
        (base / "etc" / "sources.list").write_text("".join(f"deb {_mirror()} {suite} main\n" for suite in suites))
        configuration = {
            "Dir::Etc": f"{base}/etc", "Dir::Etc::sourcelist": f"{base}/etc/sources.list",
            "Dir::Etc::sourceparts": "/dev/null", "Dir::Etc::trustedparts": "/usr/share/keyrings/",
            "Dir::State": f"{base}/state", "Dir::State::status": "/var/lib/dpkg/status", "Dir::Cache": f"{base}/cache",
            "Acquire::Languages": "none", "APT::Sandbox::User": "root",
            "Acquire::Check-Valid-Until": "false",  # a mirror may lag: what is taken is pinned
        }  # fmt: skip
        (base / "conf").write_text("".join(f'{key} "{value}";\n' for key, value in configuration.items()))
        self.environment = os.environ | {"APT_CONFIG": f"{base}/conf", "LC_ALL": "C"}
        self._run("apt-get", "update", "-qq")

    def offers(self, package: Package) -> list[str]:
        """The versions that the package's suite has, newest first."""
        rows = [line.split("|") for line in self._run("apt-cache", "madison", package.name).splitlines()]
        return [version.strip() for _, version, source in rows if f" {package.suite}/main " in source]

    def download(self, package: Package) -> None:
        if package.file.exists() and package.sha256 and _sha256(package.file) == package.sha256:
            return
        folder = FOLDER / "deb" / "partial"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self._run("apt-get", "download", "-qq", f"{package.name}={package.version}", folder=folder)
        (downloaded,) = folder.glob("*.deb")
        downloaded.rename(package.file)
        folder.rmdir()

    def _run(self, *arguments: str, folder: Path = ROOT) -> str:
        ran = subprocess.run(arguments, env=self.environment, cwd=folder, capture_output=True, text=True)
        if ran.returncode:
            last = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise NotPossible(f"Debian's packages cannot be had: `{' '.join(arguments[:2])}` says: {last}")
        return ran.stdout


def _mirror() -> str:
    """Debian's mirror as this machine is set up for it, else the one for everybody."""
    policy = subprocess.run(["apt-cache", "policy"], capture_output=True, text=True).stdout
    urls = re.findall(r"^ *\d+ (\S*/debian/?) \S+/main ", policy, re.M)
    return urls[-1] if urls else "http://deb.debian.org/debian"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _unpack(packages: Sequence[Package]) -> None:
    how = _sha256(Path(__file__))
    wanted = _Stamp(
        "unpacked", "\n".join([how, *(f"{package.folder} {_sha256(package.file)}" for package in packages)])
    )
    if wanted.holds():
        return
    for folder in ("lib", "glibc", "tools", "unpacked-one"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
    for package in packages:
        if package.is_of_tools:
            (FOLDER / "tools").mkdir(exist_ok=True)
            subprocess.run(["dpkg-deb", "-x", package.file, FOLDER / package.folder], check=True)
            continue
        target = FOLDER / "glibc" if package.folder == "glibc" else FOLDER / "lib" / package.folder
        target.mkdir(parents=True, exist_ok=True)
        whole = FOLDER / "unpacked-one"
        subprocess.run(["dpkg-deb", "-x", package.file, whole], check=True)
        for library in _shared_objects(whole):
            library.rename(target / library.name)
        shutil.rmtree(whole)
    for release, library in LIBRARIES.items():  # the name that a development package has, for who loads it by that
        (FOLDER / "lib" / release / "libamdhip64.so").symlink_to(library)
    wanted.write()


def _shared_objects(folder: Path) -> list[Path]:
    """Those that a program links to: not the converters of glibc, and no script that is named after a library."""
    return [path for path in folder.glob("usr/lib/x86_64-linux-gnu/*") if re.search(r"\.so(\.\d+)*$", path.name)]


# --- what lies below them


def _build() -> None:
    try:
        without_gpu.driver_path()
    except FileNotFoundError as why:
        raise NotPossible(str(why)) from None
    sources = (topology.__file__, sysfs.__file__, gpus.__file__)
    parts = (HERE / "enter.c", MACHINE, *(Path(source) for source in sources))
    built = _Stamp("built", "\n".join(f"{path.name} {_sha256(path)}" for path in parts))
    if built.holds():
        return
    _compile("gcc", "-O1", "-static", "-Wall", "-Wextra", str(HERE / "enter.c"), "-o", str(FOLDER / "enter"))
    shutil.rmtree(FOLDER / "machine", ignore_errors=True)
    topology.write(FOLDER / "machine", load_machine(MACHINE))
    built.write()


def _compile(*arguments: str) -> None:
    ran = subprocess.run(arguments, capture_output=True, text=True)
    if ran.returncode:
        raise NotPossible(f"{arguments[-1]} cannot be built: {ran.stderr.strip()}")


@dataclass(frozen=True)
class _Stamp:
    """What a finished step was made of."""

    name: str
    text: str

    def holds(self) -> bool:
        path = FOLDER / f"{self.name}.stamp"
        return path.exists() and path.read_text() == self.text

    def write(self) -> None:
        (FOLDER / f"{self.name}.stamp").write_text(self.text)


def _renew_lock() -> None:
    """The newest version of each package within its release."""
    archive = _Archive()
    lines = [line for line in LOCK.read_text().splitlines() if line.startswith("#")]
    for package in _pinned():
        offered = [v for v in archive.offers(package) if replace(package, version=v).release == package.release]
        if not offered:
            sys.exit(f"{package.name}: {package.suite} has no {package.release}, but {archive.offers(package)}")
        newest = replace(package, version=offered[0], sha256="")
        archive.download(newest)
        lines.append(f"{newest.suite} {newest.name} {newest.version} {_sha256(newest.file)} {newest.folder}")
    LOCK.write_text("\n".join(lines) + "\n")


def main() -> int:
    if "--lock" in sys.argv:
        FOLDER.mkdir(parents=True, exist_ok=True)
        _renew_lock()
        return 0
    try:
        ready = make_ready()
    except NotPossible as why:
        print(f"AMD's libraries cannot be made ready: {why}", file=sys.stderr)
        return 3
    print("\n".join([*ready.moved, f"ready in {FOLDER}"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
