"""Hotslot's runtime, from request to token.

1. `client.py` starts the engine process (`worker.py`) and sends a `Generate` (`protocol.py`) over a pipe.
2. `execute/engine.py` renders and tokenises the messages (`text/`) and asks the scheduler for a step.
3. `schedule/` plans in plain Python: which sequence runs which tokens; `cache/` finds the longest reusable prefix.
4. `execute/forward.py` runs the shared decoder (`layers/`) over the step; routed experts come from slots
   (`experts/`), filled from the host store by the eviction policy.
5. `execute/sampler.py` draws the token, or on a GPU the step itself (`execute/device_draws.py`), and the next step is
   launched before it is read; `execute/harvest.py` turns ids into text, reasoning and tool calls.
6. Events go back over the pipe; `telemetry/` keeps the figures the status bar shows.
"""
