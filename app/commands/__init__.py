"""One file per command of the command line; `app/cli.py` parses and calls them."""
