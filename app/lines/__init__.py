"""The line-oriented chat: one line in, one answer out. For pipes, SSH and screen readers; draws nothing."""
