"""python -m hipplan is the hipplan command."""

from hipplan.cli.main import main

main()
