"""Folds the log into tables, traces, seals and reports. Hears everything; says seals."""
