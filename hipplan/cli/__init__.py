"""The command line: one thin file per verb."""

from __future__ import annotations

import os


def command() -> None:
    """Entry point of `hipplan`. From here on a signal ends it with the signal's own exit code, whatever it meets."""
    try:
        from hipplan.cli.signals import end_at_signals

        end_at_signals()
    except KeyboardInterrupt:
        os._exit(130)
    from hipplan.cli.main import main

    main()
