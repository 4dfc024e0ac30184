"""One apply over several processes: all ranks commit, or none does.

In: a group (the ranks, and a store that all of them reach), and each rank's program. Out: a decision that is the same
for every rank, or an error that names the rank, the place in the plan and the call that failed first. Launching,
rendezvous and transport are left to others: torchrun, mpirun, a shared folder.
"""
