"""Sandboxes: the port, the bubblewrap backend, bases."""
