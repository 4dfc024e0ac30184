"""One apply over several processes: all ranks commit, or none does.

In: a group (who the ranks are, and a store that all of them reach), and each rank's program. Out: a decision that every
rank reads alike, or an error that names the rank, the place in the plan and the call that failed first. Launching,
rendezvous and transport are the engine's: torchrun, mpirun, a shared folder.
"""
