"""Plans rounds and writes environments. Hears pool, verdicts, rollouts (no evaluations); says plans and proposals."""
