"""How a group of rollouts is run and graded."""
