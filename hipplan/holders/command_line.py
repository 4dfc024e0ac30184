"""The command line that a filler repeats: the arguments, folder and settings of `hipplan up` or `hipplan replace`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hipplan.processes.packets import Message

_SETTINGS = "HIPPLAN_"
_STDIN = "-"


class CommandLine:
    """The arguments of `hipplan up` or `replace`, and the folder and environment in which they were given."""

    def __init__(self, arguments: Sequence[str], folder: str, settings: Mapping[str, str]) -> None:
        """arguments: options, then `--` and the plan's file. settings: environment variables; only those that hipplan
        reads are kept."""
        self.arguments = list(arguments)
        self.folder = folder
        self.settings = {name: value for name, value in settings.items() if name.startswith(_SETTINGS)}

    def message(self) -> Message:
        """The command line as a part of a request."""
        return {"arguments": self.arguments, "folder": self.folder, "settings": self.settings}

    @classmethod
    def read(cls, message: Message) -> CommandLine:
        """Read the command line in a request. Raises ValueError."""
        arguments, folder, settings = message.get("arguments"), message.get("folder"), message.get("settings")
        if not isinstance(arguments, list) or not isinstance(folder, str) or not isinstance(settings, dict):
            raise ValueError("a command line has arguments, a folder and settings")
        require_arguments((*arguments, folder, *settings, *settings.values()))
        return cls(arguments, folder, settings)

    @property
    def from_stdin(self) -> bool:
        """Whether the plan came from standard input, so that it cannot be read a second time."""
        return self.arguments[-1:] == [_STDIN]

    def with_options(self, options: Sequence[str]) -> CommandLine:
        """The same command line with more options, in a folder that exists."""
        before, plan = self.arguments[:-2], self.arguments[-2:]
        folder = self.folder if Path(self.folder).is_dir() else "/"
        return CommandLine([*before, *options, *plan], folder, self.settings)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """An environment with the settings of this command line instead of its own."""
        return {name: value for name, value in environment.items() if not name.startswith(_SETTINGS)} | self.settings


def require_arguments(values: object) -> None:
    """Raises ValueError: these are not arguments that a process can have."""
    if not isinstance(values, (list, tuple)):
        raise ValueError("arguments are a list")
    for value in values:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError("an argument is text without a null character")
