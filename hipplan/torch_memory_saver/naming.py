"""How other code finds hipplan.torch_memory_saver under the name torch_memory_saver: a folder on Python's path."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "torch_memory_saver"


def folder() -> Path:
    """The folder with the package `torch_memory_saver`, for PYTHONPATH."""
    return Path(__file__).with_name("stand_in")


def install() -> None:
    """Makes `import torch_memory_saver` hipplan's, in this process and in those that multiprocessing spawns.

    Raises ImportError: another torch_memory_saver was imported already.
    """
    there = getattr(sys.modules.get(_NAME), "__file__", None)
    if there is not None and folder() not in Path(there).parents:
        raise ImportError(f"{there} is imported already: call hipplan.torch_memory_saver.install() before")
    if str(folder()) not in sys.path:
        sys.path.insert(0, str(folder()))


@contextmanager
def configure_subprocess() -> Iterator[None]:
    """In programs that start while this is entered, `import torch_memory_saver` is hipplan's. Nothing is preloaded."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder()), before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
