"""What `scripts/bench_kernels.py` is made of: timing, a layer's memory, routing with a known number of misses."""
