"""One module a group of commands; each function takes the parsed arguments and returns an exit code."""
