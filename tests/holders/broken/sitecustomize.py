"""Puts a bug into holders: HOLDERS_BUG names the method of hipplan.holders.holder.Holder that raises KeyError.

Its folder is in PYTHONPATH: Python imports this module first in every process that a test starts.
"""

import os
import sys
from typing import Any, NoReturn

if "--starter" in sys.orig_argv:
    from hipplan.holders.holder import Holder

    def fails(*_: Any) -> NoReturn:
        raise KeyError("a bug for this test")

    setattr(Holder, os.environ["HOLDERS_BUG"], fails)
