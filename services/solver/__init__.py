"""Runs groups of rollouts. Hears requests for them; says what came of each attempt."""
