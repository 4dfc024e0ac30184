"""What this machine's driver does, as a report to attach to an issue: `hipplan doctor --report`.

In: a runtime. Out: a document, and a page of text, without names of the host, its user or its devices. Each part runs
in a process of its own with a time limit: a driver that crashes or hangs there is a line of the report.
"""
