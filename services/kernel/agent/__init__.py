"""The terminal harness: brains that speak, sandboxes that answer, transcripts."""
