"""Harbor tasks: read, write, build, grade."""
