"""Conversations kept in SQLite."""
