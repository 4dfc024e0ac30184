"""What a layout knows of the copies of its sleeping bytes: their checksums, and the files with them."""

from __future__ import annotations

import logging
import os
import shlex
from dataclasses import dataclass, field

from hipplan.errors import ApplyError, Diagnostic, reason_of
from hipplan.files.places import UnsafeFile
from hipplan.files.private import PrivateFile
from hipplan.program.alike_backups import Backups, places_of
from hipplan.program.backups import FILE
from hipplan.program.difference import Difference
from hipplan.program.program import Program
from hipplan.program.sleeping_bytes import plan_name_of

log = logging.getLogger("hipplan")

Checksums = dict[tuple[str, int], int]
"""Pinned memory or file, and the offset of an allocation's bytes in it -> their checksum."""


@dataclass
class Copies:
    """The copies of one state of a layout. A change works on an instance of its own."""

    sums: Checksums = field(default_factory=dict)
    files: dict[str, PrivateFile] = field(default_factory=dict)
    """By path."""
    _made: list[PrivateFile] = field(default_factory=list)
    """By the change that this instance is for."""
    _unneeded: list[PrivateFile] = field(default_factory=list)
    """After the change."""

    def for_change(self) -> Copies:
        return Copies({**self.sums}, {**self.files})

    @property
    def descriptors(self) -> dict[str, int]:
        """Path -> the descriptor of an open file, which is not the caller's."""
        return {path: file.descriptor for path, file in self.files.items()}

    def add(self, file: PrivateFile) -> None:
        """A file that the change has made."""
        self.files[file.path] = file
        self._made.append(file)

    def reopen(self, change: Difference) -> None:
        """Opens the files again that a change relies on, and which it does not write.

        Raises ApplyError: a file is gone, or is another one whose bytes have no checksum (HP443), or another user could
        have put it there (HP416).
        """
        old, new = change.old, change.new
        if not (change.contents or new.backups):
            return
        written = {step.file_written for step in change.contents}
        read = {file for step in change.contents for file in step.files_read}
        before, now = Backups.of(old.backups).firsts, Backups.of(new.backups).firsts
        relied_on = {backup.place: name for name, backup in before.items() if backup.place in read}
        fallen_asleep = {name: backup for name, backup in now.items() if name in old.makers and name not in new.makers}
        in_files = {backup.place: name for name, backup in fallen_asleep.items() if backup.to == FILE}
        unchanged = {place: name for place, name in in_files.items() if place not in written}
        for place, name in relied_on.items():
            self.files[place] = self._reopened(place, name, old, "")
        for place, name in unchanged.items():
            self.files[place] = self._reopened(place, name, old, "leave unchanged= out: then it is written again")

    def _reopened(self, place: str, name: str, program: Program, hint: str) -> PrivateFile:
        """hint: what to do; empty: the bytes are needed, so it says how to restore them."""
        was_open, backups = self.files[place], Backups.of(program.backups).firsts
        size = backups[name].file_size
        checked = all(backup.checked for backup in backups.values() if backup.place == place)
        code, is_same = "HP443", False
        try:
            file = PrivateFile.opened(place)
            is_same = file.is_file(was_open)
            if file.size == size and (is_same or checked):
                return file
            why = f"{place} has {file.size:,} bytes, and had {size:,}"
            if file.size == size:
                why = f"{place} is not the file that sleep() wrote"
        except UnsafeFile as error:
            code, why, hint = "HP416", f"{place}: {error.strerror}", error.hint if hint else ""
        except OSError as error:
            why = f"{place} cannot be read: {reason_of(error)}"
        what = f"the copy of '{plan_name_of(program, name)}' has changed"
        hint = hint or ("restore it, then wake again" if is_same else _restoring(was_open, checked=checked))
        raise ApplyError(Diagnostic(code, what, why=why, hint=hint))

    def keep_only(self, program: Program) -> None:
        """Drops what no backup of a program needs."""
        if not (self.sums or self.files):
            return
        places = places_of(program.backups)
        self.sums = {key: checksum for key, checksum in self.sums.items() if key[0] in places}
        self._unneeded = [file for place, file in self.files.items() if place not in places]
        self.files = {place: file for place, file in self.files.items() if place in places}

    def remove_old(self) -> None:
        """Removes the files that the change no longer needs, when it is made."""
        self._made.clear()
        _remove(self._unneeded)

    def remove_new(self) -> None:
        """Removes the files that the change has made, when it is rolled back."""
        _remove(self._made)


def _restoring(was_open: PrivateFile, *, checked: bool) -> str:
    """How to put a file back that is still open."""
    if was_open.has_its_name:
        return f"chmod 600 {shlex.quote(was_open.path)}, then wake again"
    if not checked:
        return "move the file that sleep() wrote back there, then wake again"
    open_file = f"/proc/{os.getpid()}/fd/{was_open.descriptor}"
    return f"this restores it: install -m 600 {open_file} {shlex.quote(was_open.path)}; then wake again"


def _remove(files: list[PrivateFile]) -> None:
    while files:
        file = files.pop()
        try:
            file.remove()
        except OSError as error:
            log.warning("%s is no longer needed and cannot be removed: %s", file.path, reason_of(error))
