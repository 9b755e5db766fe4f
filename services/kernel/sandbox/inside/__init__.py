"""The program that is PID 1 of a sandbox, run by the image's own python3 (3.9 or newer), or in a container by ours.

`services.kernel.sandbox.bundle` carries these modules in. They import built-in modules only and pathlib, json, signal,
struct and subprocess not at all: those would double the start-up time of every sandbox. Nothing is imported after the
first frame, because by then the files of the sandbox belong to an agent.
"""
