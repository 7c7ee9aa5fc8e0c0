"""Hotslot's application, from key to screen.

1. `cli.py` parses the command; without one it opens the TUI (`tui/app.py`).
2. A key reaches one row of the action table (`app/actions.py`); Enter sends the prompt.
3. `tui/bridge.py` runs `ChatSession.send` (`chat/session.py`) in a worker and posts every event as a message.
4. The session stores the user's message (`store/`), builds the engine's messages (`chat/context_window.py`) and
   streams the request through the one engine door (`engine.py`), which speaks to the engine process.
5. Text passes `sanitize.py` before it becomes an event; the transcript widget appends it to the open block.
6. The ended turn is stored (`chat/recording.py`, on the store's own thread); the status bar shows the engine's last
   figures.
7. Small requests run beside it (`chat/side_calls.py`): the first answer gets its chat a title (`chat/side_jobs.py`).
"""
