"""What is to be filled, as a command line has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hipplan.processes.packets import Message

_SETTINGS = "HIPPLAN_"
_STDIN = "-"


class Order:
    """The arguments of `hipplan up` or `replace`, and where they were given."""

    def __init__(self, arguments: Sequence[str], folder: str, settings: Mapping[str, str]) -> None:
        """arguments: options, then `--` and the plan's file. settings: environment variables; those that hipplan reads
        are used."""
        self.arguments = list(arguments)
        self.folder = folder
        self.settings = {name: value for name, value in settings.items() if name.startswith(_SETTINGS)}

    def message(self) -> Message:
        return {"arguments": self.arguments, "folder": self.folder, "settings": self.settings}

    @classmethod
    def read(cls, message: Message) -> Order:
        """Raises ValueError."""
        arguments, folder, settings = message.get("arguments"), message.get("folder"), message.get("settings")
        if not isinstance(arguments, list) or not isinstance(folder, str) or not isinstance(settings, dict):
            raise ValueError("an order has arguments, a folder and settings")
        require_texts((*arguments, folder, *settings, *settings.values()))
        return cls(arguments, folder, settings)

    @property
    def from_stdin(self) -> bool:
        """Whether the plan cannot be read a second time."""
        return self.arguments[-1:] == [_STDIN]

    def again(self, options: Sequence[str]) -> Order:
        """The same order, with options of the command that repeats it."""
        before, plan = self.arguments[:-2], self.arguments[-2:]
        folder = self.folder if Path(self.folder).is_dir() else "/"
        return Order([*before, *options, *plan], folder, self.settings)

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Of the process that does it. own: of the process that starts it."""
        return {name: value for name, value in own.items() if not name.startswith(_SETTINGS)} | self.settings


def require_texts(values: object) -> None:
    """Raises ValueError: this is no sequence of arguments of a process."""
    if not isinstance(values, (list, tuple)):
        raise ValueError("arguments are a list")
    for value in values:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError("an order is text")
