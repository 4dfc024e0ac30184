"""Moves bytes to and from the memory of one state of a layout, with the lanes that its program has."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain, count, repeat
from typing import Any

from hipplan import _core
from hipplan.errors import ApplyError, Diagnostic
from hipplan.files.output import replacing, unwritten
from hipplan.files.private import PrivateFile
from hipplan.files.tensorfiles import Files
from hipplan.layout.copies import Checksums, Copies
from hipplan.layout.options import OnBytes
from hipplan.layout.state import State
from hipplan.program.content_steps import (
    STREAMS,
    ContentStep,
    Copy,
    Digest,
    Fill,
    LoadFiles,
    MemoryPart,
    Save,
    joined,
    joined_pieces,
    size_of,
)
from hipplan.program.contents import lanes_of, staging_name, stream_name
from hipplan.program.on_demand import Evenly
from hipplan.program.series import segments
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
            for (begin, part), each, summed in joined_pieces(load.pieces, load.sums):
                place = rows.descriptor, rows.offset, rows.row, rows.stride, begin
                number = self._number(load.wanted.file, part, each, summed)
                self.filler.load(load.wanted.name, part.device, self.at(part), part.size, *place, number, each)

    def save(self, step: Save) -> None:
        size = len(step.header) + size_of(step)
        try:
            if step.places is not None:
                self._write_to(step, 0)
                return
            with replacing(step.file, private=step.private) as descriptor:
                os.posix_fallocate(descriptor, 0, max(size, 1))  # a full disk is reported before the first byte
                os.ftruncate(descriptor, size)
                os.pwrite(descriptor, step.header, 0)
                self._write_to(step, descriptor)
                if step.private:
                    self._copies.add(PrivateFile(step.file, os.dup(descriptor)))
        except (OSError, ValueError) as error:
            if error is self._callbacks.raised:
                raise
            raise ApplyError(unwritten(step.file, "", error)) from None

    def _write_to(self, step: Save, new_file: int) -> None:
        """new_file: the descriptor of the file for parts that have no places, one after the other behind the header."""
        places, end = iter(step.places or ()), len(step.header)
        for part, each, summed in joined(step.parts, step.sums):
            descriptor, offset = (new_file, end) if step.places is None else next(places)
            number = self._number(step.file, part, each, summed)
            self.filler.save(step.name, part.device, self.at(part), part.size, descriptor, offset, number, each)
            end += part.size
        self._copies.sums.update(self.run())

    def digest(self, step: Digest) -> None:
        descriptor = self._copies.files[step.place].descriptor if step.is_file else -1
        pieces = [
            [(part[0][0], part.size, part.each)] if isinstance(part, Evenly) else part for part in segments(step.pieces)
        ]
        for offset, size, *each in chain.from_iterable(pieces):
            number = self._add_numbers(step.place, offset, size, *each)
            address = 0 if step.is_file else self.at(MemoryPart(step.place, offset, size, CPU_ORDINAL))
            self.filler.sum(step.name, address, size, descriptor, offset, number, *each)
        sums = self.run()
        if step.compares:
            self._compare(sums, is_file=step.is_file)
        self._copies.sums.update(sums)

    def _number(self, place: str, part: MemoryPart, each: int, offset: int | None) -> int | None:
        """The number of a part's checksum in this run of the filler: of the first one, if it has several allocations of
        `each` bytes. None: it has none."""
        if offset is None:
            return None
        if each:
            return self._add_numbers(place, offset, part.size, each)
        return self._numbers.setdefault((place, offset), len(self._numbers))

    def _add_numbers(self, place: str, offset: int, size: int, each: int = 0) -> int:
        """Numbers the checksums of allocations that lie one after the other. Returns the first number."""
        first, offsets = len(self._numbers), range(offset, offset + size, each or max(size, 1))
        self._numbers.update(zip(zip(repeat(place), offsets), count(first)))  # neither ends
        return first

    def _compare(self, sums: Checksums, *, is_file: bool) -> None:
        """Raises ApplyError (HP443), which names the memory whose checksum is not the stored one."""
        assert self._before is not None
        program = self._before.program
        differ = [key for key, checksum in sums.items() if checksum != self._copies.sums.get(key)]
        if not differ:
            return
        names = {(backup.place, backup.offset): name for name, backup in program.backups.items()}
        damaged = {plan_name_of(program, names[place, offset]): place for place, offset in differ}
        diagnostics = []
        for name, place in damaged.items():
            why, hint = f"the checksum of {place} differs", f"restore {place}, then wake again" if is_file else ""
            diagnostics.append(Diagnostic("HP443", f"the copy of '{name}' has changed", why=why, hint=hint))
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

    def run(self) -> Checksums:
        """Does the filler's work; the checksums. Raises as do()."""
        filler, self._filler = self.filler, None
        numbers, self._numbers = self._numbers, {}
        on_bytes, total = self._on_bytes, filler.total
        filler.run(None if on_bytes is None else lambda done: self._callbacks.call(on_bytes, done, total))
        return dict(zip(numbers, filler.take_sums(), strict=True))
