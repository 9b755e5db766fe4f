"""Plans and computes updates, evaluates, closes rounds. Hears pools and rollouts; says checkpoints."""
