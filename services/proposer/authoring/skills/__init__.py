"""Skills that only the proposer writes tasks of: families beyond those that the shipped model was started on."""
