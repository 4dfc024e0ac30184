"""All questions, by part. A part has a process of its own; a second one where a question ends the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hipplan.checkup import asleep, contract, growing, hosts, links, profile, shared, speed, virtual
from hipplan.checkup.question import Question

PROFILE, AT_THE_END = "profile", "at the end"
PARTS: Mapping[str, Sequence[Question]] = {
    PROFILE: profile.QUESTIONS,
    "calls": contract.QUESTIONS,
    "virtual memory": virtual.QUESTIONS,
    "host chunks": hosts.QUESTIONS,
    "devices": links.QUESTIONS,
    "sleep": asleep.QUESTIONS,
    "processes": shared.QUESTIONS,
    "growth": growing.QUESTIONS,
    "speeds": speed.QUESTIONS,
    AT_THE_END: profile.AT_THE_END,
}
