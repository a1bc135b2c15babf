"""Operations by design: random blocks of calls that fill the space that networks leave empty.

A block is traced as a network is, so that its operations are the same objects: strides, gradients and changes in place
are those of real calls.
"""
