"""Training the shipped checkpoint `nano`: its corpus, tokenizer, baselines, model and loop."""
