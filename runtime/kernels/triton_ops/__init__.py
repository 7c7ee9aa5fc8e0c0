"""The ops of `torch_ops` once more, as Triton kernels: same names, shapes and meaning.

Kernels use what compute capability 8.6 has (no inline assembly, no e4m3 type, at most 99 KiB of shared memory per
block). They allocate their outputs and nothing else, never wait for the device, and can be captured into a graph.
The order of every sum is fixed by the shape alone; what tuning may vary leaves the bits unchanged.
"""
