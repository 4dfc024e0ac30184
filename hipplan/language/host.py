"""The word of a plan for the CPU, where it takes a device. By itself, because a holder needs it and reads no plan."""

from __future__ import annotations

HOST = "host"
