"""How environments are written: the workspace, the drafts' channel, and the built-in procedural brain."""
