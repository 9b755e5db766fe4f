"""The four services, the observer, the kernel they share and the command line."""
