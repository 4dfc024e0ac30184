"""What a forked child may still import and read. It has only the thread that forked, so that a lock which another
thread of its parent held stays locked in it.

A fork does not wait for such threads: they may wait for a lock that another library takes before a fork.
"""

from __future__ import annotations

import importlib
import os
import sys
from _thread import RLock, get_ident

HINT = 'start a new process (multiprocessing: "spawn"), or fork before the first use'


def no_child_waits_for_threads_of_its_parent() -> None:
    """Applies to all forks of this process from now on."""
    os.register_at_fork(after_in_child=_in_child)


def _in_child() -> None:
    half_imported = set()
    locks = importlib._bootstrap._module_locks  # type: ignore[attr-defined]  # Python renews only its global lock
    for name, reference in [*locks.items()]:
        lock = reference()
        if lock is None or lock.owner == get_ident():
            continue
        del locks[name]
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]
            half_imported.add(name)
    if half_imported:
        sys.meta_path.insert(0, _Refusal(half_imported))
    if hasattr(models := sys.modules.get("pydantic.main"), "_rebuild_lock"):
        models._rebuild_lock = RLock()  # type: ignore[union-attr]  # held while a model is built, at its first use


class _Refusal:
    """Refuses to import modules of which the parent has imported a half: importing them again could mix two halves."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._errors = sys.modules.get("hipplan.errors")

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ImportRefused (HP407), or a plain ImportError where the parent had not imported that class yet."""
        if name not in self._names:
            return
        summary = f"{name} cannot be imported in this process"
        why = "it was forked while another thread of its parent was importing that module"
        if self._errors is None:
            raise ImportError(f"{summary}: {why}; {HINT}")
        raise self._errors.ImportRefused(self._errors.Diagnostic("HP407", summary, why=why, hint=HINT))
