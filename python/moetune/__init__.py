"""Plans the training of Mixture-of-Experts models: schedule, number of chunks and parallel shape for a cluster.

`moetune.plan` has the functions; `python -m moetune` and the command `moetune` run the planning program itself.
"""
