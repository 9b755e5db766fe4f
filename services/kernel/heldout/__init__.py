"""The held-out sets `near` and `far`, frozen by digest, and the grams that decontaminate."""
