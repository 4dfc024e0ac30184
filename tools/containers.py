"""Runs the steps of a Dockerfile in a fresh root folder, on a machine without a container engine.

python -m tools.containers FOLDER [DOCKERFILE ...]    left out, all of containers/

FOLDER is a fresh root folder, as made by `debootstrap --variant=minbase SUITE FOLDER`. A copy of it takes the place
of the base image, which cannot be had here: the steps run, the image is not built. ENV, WORKDIR, COPY and RUN are
carried out as docker does; the package index, the proxies and the certificates of this machine are handed on. It
needs root, for chroot and for namespaces, which end with the step. The exit code is 0, or 1 with the step that
failed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
CERTIFICATES, COPIED = Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/certificates-of-the-host.crt")
"""Of this machine's network, and where the steps find them: the image's own are written by its packages."""
NETWORK = re.compile(r"(?i)pip_(extra_)?index_url|\w+_proxy")
Step = tuple[str, str]
"""An instruction in capital letters, and what follows it in one line."""


class Failed(Exception):
    """A step cannot be carried out; the text says which, and why."""


def main(folder: str, *files: str) -> int:
    for file in map(Path, files or sorted((ROOT / "containers").glob("*.Dockerfile"))):
        with tempfile.TemporaryDirectory(prefix="container-") as copy:
            root = Path(copy) / "root"
            subprocess.run(["cp", "-a", folder, root], check=True)
            try:
                for step in steps(file.read_text()):
                    print(f"{file.name}: {' '.join(step)}", flush=True)
                    carry_out(step, root)
            except Failed as failed:
                print(f"{file.name}: {failed}", file=sys.stderr)
                return 1
        print(f"{file.name}: all steps are done", flush=True)
    return 0


def steps(text: str) -> Iterator[Step]:
    """The instructions of a Dockerfile, without comments, each as one line."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def carry_out(step: Step, root: Path) -> None:
    """Does one step to a root folder. What ENV and WORKDIR set is in two files there, for the steps after them."""
    word, rest = step
    state = root.parent / "state.json"
    known = json.loads(state.read_text()) if state.exists() else {"env": {"PATH": "/usr/sbin:/usr/bin"}, "cwd": "/"}
    if word == "FROM":
        prepare(root)
    elif word == "ENV":
        name, _, value = rest.partition("=")
        known["env"][name] = re.sub(r"\$(\w+)", lambda match: known["env"].get(match[1], ""), value)
    elif word == "WORKDIR":
        known["cwd"] = rest
        inside(root, rest).mkdir(parents=True, exist_ok=True)
    elif word == "COPY":
        copy(rest.split(), root, known["cwd"])
    elif word == "RUN":
        run(rest, root, known["env"], known["cwd"])
    elif word == "CMD":
        json.loads(rest)  # the form of a list; it is for the GPUs of the container
    else:
        raise Failed(f"tools/containers.py does not know {word}")
    state.write_text(json.dumps(known))


def inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def prepare(root: Path) -> None:
    """What an engine gives to a container: names of hosts, and here the certificates of this machine's network."""
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, inside(root, str(COPIED)))


def copy(names: list[str], root: Path, cwd: str) -> None:
    *sources, target = names
    folder = inside(root, str(Path(cwd, target)))
    for source in sources:
        files = sorted(ROOT.glob(source))
        if not files:
            raise Failed(f"COPY {source}: there is no such file; wheels are made by 'make release'")
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            shutil.copy(file, folder)


def run(line: str, root: Path, variables: dict[str, str], cwd: str) -> None:
    """With /proc and processes of its own: what the step starts ends with it."""
    network = {name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}
    if inside(root, str(COPIED)).exists():
        network |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), str(COPIED))
    own = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root / 'proc'}"]
    command = [*own, "chroot", str(root), "/bin/sh", "-c", f"cd {cwd} && {line}"]
    environment = {**network, **variables, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"the step failed with exit code {done.returncode}: RUN {line}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
