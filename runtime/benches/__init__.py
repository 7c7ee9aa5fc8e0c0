"""Benches of the runtime, each a module to run: `python -m runtime.benches.NAME`. `hotslot bench` starts them.

They measure the engine's own parts over random weights of a published geometry, with injected routing, so that hits and
misses are what was asked for. On a CPU they run the same code over a tiny geometry, to show that it runs.
"""
