"""Groups of trajectories in, the next checkpoint out: objectives, the optimiser step, the cold start."""
