"""Language models: checkpoints, tokenizer and template, the engine protocol and the built-in torch engine."""
