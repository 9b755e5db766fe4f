"""Checks and calibrates environments, keeps the pool. Hears proposals and rollouts; says verdicts and pools."""
