"""Terminal skills that tasks are composed of, with references and checks."""
