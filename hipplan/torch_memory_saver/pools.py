"""The memory behind torch_memory_saver: one layout, with a region for each tag, kind of backup and device."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from hipplan.api import apply
from hipplan.errors import HipplanError
from hipplan.layout.layout import Layout
from hipplan.layout.pools_asleep import pools_asleep
from hipplan.layout.questions import asked
from hipplan.machines.runtimes import choose
from hipplan.program.backups import DROP, HOST
from hipplan.program.refusals import refuse_asleep

CHUNKS_MAX = 1024
"""The most chunks of a region: on AMD each takes a file descriptor."""
MIB = 2**20


class Kind(NamedTuple):
    """What tensors of one pool have in common."""

    tag: str
    kept: bool
    """Whether their bytes are saved in host memory while they are paused; else they are dropped."""
    device: int
    """HIP's and PyTorch's ordinal."""


class Pools:
    """Regions for PyTorch's allocations, made when they are first used. A region reserves as many addresses as its
    device has memory."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._names: dict[Kind, str] = {}
        self._plan: dict[str, Any] = {"hipplan": 1, "name": "torch_memory_saver", "devices": {}, "regions": {}}
        self.layout: Layout | None = None
        """None: nothing was allocated yet."""

    def used(self, kind: Kind) -> AbstractContextManager[Any]:
        """While entered, this thread's allocations are of that kind. Raises as hipplan.apply and Layout.torch_pool."""
        layout, name = self.region(kind)
        return layout.torch_pool(name)

    def captured(self, kind: Kind, graph: Any, **how: Any) -> AbstractContextManager[None]:
        """Captures a graph as Layout.torch_graph() does."""
        layout, name = self.region(kind)
        return layout.torch_graph(name, graph, **how)

    def region(self, kind: Kind) -> tuple[Layout, str]:
        """The layout and the name of the region in it. Raises as hipplan.apply and Layout.update."""
        with self._lock:
            name = self._names.get(kind)
            if name is None or self.layout is None:
                name = self._new_name(kind)
                self._add(kind, name)
                self._names[kind] = name
            assert self.layout is not None
            return self.layout, name

    def _new_name(self, kind: Kind) -> str:
        """The tag, as far as a plan can have it as a name."""
        words = re.sub(r"[^A-Za-z0-9_-]+", "-", kind.tag)[:100].strip("-")
        words = words if re.match("[A-Za-z_]", words) else f"tag-{words}"
        name = f"{words}.kept.{kind.device}" if kind.kept else f"{words}.{kind.device}"
        taken = {*self._names.values()}
        return next(
            wanted for number in range(len(taken) + 1) if (wanted := name + f".{number}" * (number > 0)) not in taken
        )

    def _add(self, kind: Kind, name: str) -> None:
        device = f"gpu{kind.device}"
        memory = self._memory(kind.device)
        chunk = -(-memory // CHUNKS_MAX // MIB) * MIB
        region = {"device": device, "size": 0, "reserve": memory, "chunk": chunk, "torch": {"tag": name}}
        plan = {
            **self._plan,
            "devices": {**self._plan["devices"], device: {"ordinal": kind.device}},
            "regions": {**self._plan["regions"], name: region},
        }
        if self.layout is None:
            self.layout = apply(plan)
        else:
            self.layout.update(plan)
        self._plan = plan

    def _memory(self, device: int) -> int:
        """Bytes of a device."""
        native = choose(None).runtime if self.layout is None else self.layout.runtime
        return asked(partial(native.memory_info, device), f"gpu{device}")[1]

    def pause(self, tag: str | None) -> None:
        """Frees the memory of all kinds with a tag, or of all; all of them sleep, or none. What is paused already stays
        so. Raises as Layout.sleep(); the error names what is paused."""
        if (layout := self.layout) is None:
            return
        with self._lock, self._named(layout):
            kept, dropped = (self._of(layout, tag, kept=kept, asleep=False) for kept in (True, False))
            with pools_asleep(layout._holding, kept, HOST):
                layout.sleep(dropped, to=DROP)

    def resume(self, tag: str | None, *, retain: bool) -> None:
        """Restores memory and bytes of all kinds with a tag, or of all; all of them wake, or none. retain: keeps the
        copies. Raises as Layout.wake(); the error names what is paused."""
        if (layout := self.layout) is None:
            return
        with self._lock, self._named(layout):
            layout.wake([name for kept in (True, False) for name in self._of(layout, tag, kept=kept, asleep=True)],
                        retain=retain)  # fmt: skip

    def host_copy(self, address: int, size: int) -> memoryview | None:
        """Returns what Layout.host_copy() does. Raises ApplyError (HP441) for memory that is paused and was dropped."""
        if (layout := self.layout) is None:
            return None
        for name, where in layout.asleep.items():
            begin = layout[name].address
            if where == DROP and begin <= address < begin + self._plan["regions"][name]["reserve"]:
                raise refuse_asleep(name, "its bytes were dropped: enable_cpu_backup was not set")
        return layout.host_copy(address, size)

    def _of(self, layout: Layout, tag: str | None, *, kept: bool, asleep: bool) -> list[str]:
        """Regions that are asleep or awake, of one tag or all."""
        return [
            name for kind, name in self._names.items()
            if kind.kept == kept and tag in (None, kind.tag) and (name in layout.asleep) == asleep
        ]  # fmt: skip

    @contextmanager
    def _named(self, layout: Layout) -> Iterator[None]:
        """Adds to an error what is paused after it."""
        try:
            yield
        except HipplanError as error:
            paused = ", ".join(layout.asleep) or "nothing"
            first, *others = error.diagnostics
            error.diagnostics = (replace(first, notes=(*first.notes, f"paused now: {paused}")), *others)
            raise
