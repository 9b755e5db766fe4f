"""The gates of the validator: each one check of an environment, with evidence."""
