"""Messages between processes of one user about their layouts.

In: open layouts. Out: bounded JSON over sockets, which `hipplan verify` requests.
"""
