"""`cuptimem simulate` and cuptimem.simulate(): an unchanged program on a simulated GPU, and what that says.

cards, environment   what can be simulated, and whether it can be here: said before anything runs
launch               one run of the program in a process of its own, on a device of a given size
child, data_sizes    what happens inside that process besides the program itself
device_report        what the simulated device counted
settings             which settings of PyTorch's allocator are tried
questions            which runs are needed for an answer
verdict              the answer, from what the runs were like
result               the answer as plain frozen data
api                  cuptimem.simulate()
"""
