"""Documents: their text out of files, marked blocks, passages that a question finds, citations. No engine, no screen.

A document is an `app.messages.Attachment`: its name, its text and its kind, which says how places in it are marked.
"""
