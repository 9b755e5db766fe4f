"""Sandboxes in containers of a Docker Engine. The package `docker` is imported here only, when a backend is opened."""
