"""Moves bytes to and from the memory of one state of a layout, with the lanes that its program has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic
from hipplan.files.output import replacing, unwritten
from hipplan.files.private import PrivateFile
from hipplan.files.tensorfiles import Files, Rows
from hipplan.layout.copies import Checksums, Copies
from hipplan.layout.options import OnBytes
from hipplan.layout.state import State
from hipplan.program.content_steps import STREAMS, ContentStep, Copy, Digest, Fill, LoadFiles, MemoryPart, Save
from hipplan.program.contents import lanes_of, staging_name, stream_name
from hipplan.program.sleeping_bytes import plan_name_of
from hipplan.program.steps import CPU_ORDINAL


class Callbacks:
    """Runs the user's callbacks."""

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        """The exception of a callback, to distinguish it from hipplan's own of the same type."""

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Raises what it raises."""
        try:
            function(*arguments)
        except BaseException as error:
            self.raised = error
            raise


class Mover:
    """Does one content step, or a save, at a time."""

    def __init__(
        self,
        state: State,
        files: Files,
        on_bytes: OnBytes | None,
        callbacks: Callbacks,
        before: State | None = None,
        copies: Copies | None = None,
    ) -> None:
        """before: the old state in a change, which has the objects that it removes. copies: of sleeping bytes."""
        self.files = files
        """The files to read."""
        self._callbacks = callbacks
        self._state = state
        self._before = before
        self._copies = copies or Copies()
        self._on_bytes = on_bytes
        self._filler: _core.Filler | None = None
        self._addresses: dict[str, int] = {}
        """Object -> its address, for parts of it: there may be thousands."""
        self._numbers: dict[tuple[str, int], int] = {}
        """The checksums that the filler computes -> their numbers."""

    def do(self, step: ContentStep) -> None:
        """Fills, copies, loads or saves. Raises HipError; ApplyError: a file cannot be written (HP413, HP416), a copy
        has changed (HP443); OSError and ValueError for files that change while they are read."""
        step.done_by(self)
        if self._filler is not None and (sums := self.run()):
            self._compare(sums, is_file=True)

    def begin(self, step: Fill | Copy | LoadFiles, stream: int, ordinal: int) -> _core.Background:
        """Does what do() does, on threads, after the work that is in a stream now."""
        step.done_by(self)
        filler, self._filler = self.filler, None
        return _core.Background(self._state.runtime, filler, ordinal, stream)

    def read(self, name: str, parts: Sequence[MemoryPart], address: int) -> None:
        """Copies into ordinary host memory."""
        for part in parts:
            self.filler.copy(name, CPU_ORDINAL, address, part.device, self.at(part), part.size, True)
            address += part.size
        self.run()

    def write(self, name: str, parts: Sequence[MemoryPart], address: int) -> None:
        """Copies from ordinary host memory."""
        for part in parts:
            self.filler.copy(name, part.device, self.at(part), CPU_ORDINAL, address, part.size, True)
            address += part.size
        self.run()

    def fill(self, step: Fill) -> None:
        """Gives the work of a step to the filler, as the next two do."""
        for part in step.parts:
            self.filler.fill(step.name, part.device, self.at(part), part.size, bytes.fromhex(step.pattern))

    def copy(self, step: Copy) -> None:
        filler = self.filler
        for to, from_ in step.pairs:
            places = to.device, self.at(to), from_.device, self.at(from_)
            filler.copy(step.name, *places, to.size, step.staged)

    def load(self, step: LoadFiles) -> None:
        for load in step.loads:
            rows = self.files.rows(load.wanted)
            for (begin, part), summed in zip_longest(load.pieces, load.sums):
                self._load_part(load.wanted.name, part, rows, begin, self._number(load.wanted.file, summed))

    def save(self, step: Save) -> None:
        size = len(step.header) + sum(part.size for part in step.parts)
        try:
            if step.places is not None:
                self._write_to(step, step.places)
                return
            with replacing(step.file, private=step.private) as descriptor:
                os.posix_fallocate(descriptor, 0, max(size, 1))  # a full disk is reported before the first byte
                os.ftruncate(descriptor, size)
                os.pwrite(descriptor, step.header, 0)
                self._write_to(step, _in_a_row(step, descriptor))
                if step.private:
                    self._copies.add(PrivateFile(step.file, os.dup(descriptor)))
        except (OSError, ValueError) as error:
            if error is self._callbacks.raised:
                raise
            raise ApplyError(unwritten(step.file, "", error)) from None

    def _write_to(self, step: Save, places: Iterable[tuple[int, int]]) -> None:
        for part, (descriptor, offset), summed in zip_longest(step.parts, places, step.sums):
            number = self._number(step.file, summed)
            self.filler.save(step.name, part.device, self.at(part), part.size, descriptor, offset, number)
        self._copies.sums.update(self.run())

    def digest(self, step: Digest) -> None:
        descriptor = self._copies.files[step.place].descriptor if step.is_file else -1
        for number, (offset, size) in enumerate(step.pieces):
            self._numbers[step.place, offset] = number
            address = 0 if step.is_file else self.at(MemoryPart(step.place, offset, size, CPU_ORDINAL))
            self.filler.sum(step.name, address, size, descriptor, offset, number)
        sums = self.run()
        if step.compares:
            self._compare(sums, is_file=step.is_file)
        self._copies.sums.update(sums)

    def _number(self, place: str, offset: int | None) -> int | None:
        """The number of a checksum in this run of the filler. None: there is none."""
        return None if offset is None else self._numbers.setdefault((place, offset), len(self._numbers))

    def _compare(self, sums: Checksums, *, is_file: bool) -> None:
        """Raises ApplyError (HP443), which names the memory whose checksum is not the stored one."""
        assert self._before is not None
        program = self._before.program
        differ = [key for key, checksum in sums.items() if checksum != self._copies.sums.get(key)]
        names = {(backup.place, backup.offset): name for name, backup in program.backups.items()}
        damaged = {plan_name_of(program, names[place, offset]): place for place, offset in differ}
        diagnostics = []
        for name, place in damaged.items():
            why, hint = f"the checksum of {place} differs", f"restore {place}, then wake again" if is_file else ""
            diagnostics.append(Diagnostic("HP443", f"the copy of '{name}' has changed", why=why, hint=hint))
        if diagnostics:
            raise ApplyError(diagnostics)

    @property
    def filler(self) -> _core.Filler:
        """The filler for the work of one content step."""
        if self._filler is None:
            self._filler = _core.Filler(self._state.runtime)
            for device in lanes_of(self._state.program):
                staging = staging_name(device)
                streams = [self._state.stream_of(stream_name(device, number)) for number in range(STREAMS)]
                self._filler.add_device(device, streams, self._state.address_of(staging), self._state.size_of(staging))
        return self._filler

    def at(self, part: MemoryPart) -> int:
        """The address of a part."""
        base = self._addresses.get(part.object)
        if base is None:
            state = self._state
            if self._before is not None and part.object not in state.lowered.slots:
                state = self._before
            base = self._addresses[part.object] = state.address_of(part.object)
        return base + part.offset

    def _load_part(self, name: str, part: MemoryPart, rows: Rows, begin: int, number: int | None) -> None:
        """Loads a device's part of some rows, from their `begin`th byte on. number: of their checksum."""
        place = rows.descriptor, rows.offset, rows.row, rows.stride, begin
        self.filler.load(name, part.device, self.at(part), part.size, *place, number)

    def run(self) -> Checksums:
        """Does the filler's work; the checksums. Raises as do()."""
        filler, self._filler = self.filler, None
        numbers, self._numbers = self._numbers, {}
        on_bytes, total = self._on_bytes, filler.total
        filler.run(None if on_bytes is None else lambda done: self._callbacks.call(on_bytes, done, total))
        return dict(zip(numbers, filler.take_sums(), strict=True))


def _in_a_row(step: Save, descriptor: int) -> Iterator[tuple[int, int]]:
    """Where each part lies in a file, after the header."""
    offset = len(step.header)
    for part in step.parts:
        yield descriptor, offset
        offset += part.size
