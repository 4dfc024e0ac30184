"""Command lines of other processes, as people read them."""

from __future__ import annotations

from hipplan.processes.command import as_typed, main_of, this_command


def test_what_hipplan_starts_is_shown_as_the_command_of_its_user() -> None:
    """The list of `verify` showed how Python is started, in over 200 characters."""
    assert as_typed(this_command("up", ["--name=q", "my plan.yaml"])) == "hipplan up --name=q 'my plan.yaml'"


def test_other_commands_are_shown_as_they_are() -> None:
    assert as_typed(["python", "train.py", "--lr", "a b"]) == "python train.py --lr 'a b'"
    assert as_typed(["python"]) == "python"
    assert as_typed(main_of("other.module", ["x"])).endswith("from other.module import main; main()' x")
