"""Runs a command on AMD's own libamdhip64, over the stand-in: python -m tests.amd.on 7.2 COMMAND...

python -m tests.amd.on 7.2 .venv/bin/hipplan apply plans/quickstart.yaml --once
python -m tests.amd.on 6.4 .venv/bin/python -m pytest tests/amd/test_alive.py
"""

from __future__ import annotations

import os
import sys

from tests.amd.libraries import RELEASES, NotPossible, command, environment, make_ready


def main() -> str | int:
    if len(sys.argv) < 3 or sys.argv[1] not in RELEASES:
        print(f"usage: python -m tests.amd.on {'|'.join(RELEASES)} COMMAND...", file=sys.stderr)
        return 2
    release, arguments = sys.argv[1], sys.argv[2:]
    try:
        ready = make_ready()
    except NotPossible as why:
        print(f"AMD's library cannot be run: {why}", file=sys.stderr)
        return 3
    whole = command(ready, arguments)
    try:
        os.execvpe(whole[0], whole, os.environ | environment(release))
    except OSError as error:
        return f"{whole[0]}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main())
