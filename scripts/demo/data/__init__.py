"""Generators of training and evaluation chats; every one takes a `random.Random` and is seeded by its caller."""
