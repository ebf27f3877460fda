"""`cuptimem simulate` and cuptimem.simulate(): whether an unchanged program fits, from runs on a simulated GPU.

cards, environment   what can be simulated, and whether it can be here: checked before anything runs
launch               one run of the program in a process of its own, on a device of a given size
child, data_sizes    what happens inside that process besides the program itself
settings             which settings of PyTorch's allocator are tried
questions            which runs are needed for an answer
facts                what one run was like
assemble             the answer, made of the runs that it rests on
result               the answer as plain frozen data
api                  cuptimem.simulate()
"""
