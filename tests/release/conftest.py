"""Wheels to check: the pure-Python one as pip builds it here, and a full one made of it and of what is installed."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import hipplan
from hipplan import _core
from tests.conftest import ROOT
from tools import release_checks
from tools.release_checks import Source

FOLDER = Path(_core.__file__).parent
PROCESSOR = os.uname().machine
INFO = f"hipplan-{hipplan.__version__}.dist-info"

Change = Callable[[dict[str, bytes]], None]
"""A change of the files in an archive, in place."""


@pytest.fixture(scope="session")
def source() -> Source:
    """This repository, as a release reads it; without git, as an sdist has it."""
    names = [path.relative_to(ROOT) for path in (ROOT / "hipplan").rglob("*") if path.is_file()]
    tracked = {str(name) for name in names if name.suffix not in (".pyc", ".so")}
    return Source(hipplan.__version__, frozenset(tracked | {"LICENSE"}), (ROOT / "LICENSE").read_bytes())


@pytest.fixture(scope="session")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("scikit_build_core")
    folder = tmp_path_factory.mktemp("pure")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "hipplan", folder / "hipplan", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(folder)], check=True, env=os.environ | {"HIPPLAN_PURE": "1"})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def full(pure: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the libraries and the other files that the build has installed here."""
    content = release_checks.members(pure)
    names = (*release_checks.COMPILED, *release_checks.COMPILED_ON[PROCESSOR], Path(_core.__file__).name)
    content |= {f"hipplan/{name}": (FOLDER / name).read_bytes() for name in names}
    content["hipplan/_core.pyi"] = (ROOT / "hipplan" / "_core.pyi").read_bytes()
    tag = "cp" + sysconfig.get_config_var("py_version_nodot")
    abi = f"{tag}{sys.abiflags}"
    name = f"hipplan-{hipplan.__version__}-{tag}-{abi}-manylinux_2_28_{PROCESSOR}.whl"
    return written(content, tmp_path_factory.mktemp("full") / name)


def written(content: Mapping[str, bytes], file: Path) -> Path:
    """Writes a wheel, with a RECORD that is right."""
    rows = []
    with zipfile.ZipFile(file, "w") as wheel:
        for name, data in content.items():
            if name != f"{INFO}/RECORD":
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                rows.append(f"{name},sha256={digest},{len(data)}\n")
                wheel.writestr(name, data)
        wheel.writestr(f"{INFO}/RECORD", "".join(rows) + f"{INFO}/RECORD,,\n")
    return file


def changed(file: Path, change: Change, folder: Path) -> Path:
    """A wheel of the same name with other files in it, and a RECORD of them."""
    content = release_checks.members(file)
    change(content)
    return written(content, folder / file.name)
