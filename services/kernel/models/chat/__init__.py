"""Models behind an OpenAI-compatible endpoint: asked over HTTP, answered in text or tool calls, paid by the token."""
