"""What processes of one user say to each other about their layouts.

In: open layouts. Out: bounded JSON over sockets, which `hipplan verify` asks for.
"""
