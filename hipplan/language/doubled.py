"""Keys that appear twice (HP005): where they are, so that no other error is reported that follows from one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import yaml

from hipplan.language.objects import Path
from hipplan.language.source import Source


class Doubled:
    """The keys that appear twice in the files of one plan, at or below its named objects."""

    def __init__(self) -> None:
        self._by_file: dict[str, set[Path]] = {}
        """Name of a file -> the paths of such keys, and of all that is above them up to the object."""

    def has(self, source: Source, path: Path) -> bool:
        """Whether such a key is at or below this path of a file."""
        if not len(source.findings):
            return False
        if source.name not in self._by_file:
            paths = _doubled(source.root)
            self._by_file[source.name] = {path[:end] for path in paths for end in range(2, len(path) + 1)}
        return path in self._by_file[source.name]


def _doubled(node: yaml.Node | None, path: Path = ()) -> Iterator[Path]:
    """The path of each key that appears twice, and of all keys beside a `kind` with two values: it decides which keys
    there are."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _doubled(item, (*path, index))
    elif isinstance(node, yaml.MappingNode):
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        kinds = {value.value for key, value in node.value if key.value == "kind" and isinstance(value, yaml.ScalarNode)}
        yield from ((*path, key) for key, count in keys.items() if count > 1 or len(kinds) > 1)
        for key, value in node.value:
            if isinstance(value, yaml.CollectionNode) and isinstance(key, yaml.ScalarNode):
                yield from _doubled(value, (*path, key.value))
