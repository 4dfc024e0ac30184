"""python -m hipplan is the hipplan command."""

from hipplan.cli import command

command()
