"""The nouns of envwheel: messages, their identity, subjects, topology and codec. Imports msgspec and nothing heavy."""
