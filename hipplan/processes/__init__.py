"""Messages between processes of one user, with descriptors, all bounded in size and time.

In: messages, and open layouts, about which `hipplan verify` asks. Out: the same in another process, through one
listener, and answers.
"""
