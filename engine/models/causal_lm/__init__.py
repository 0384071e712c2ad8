"""Transformers of one residual stream in the form of Hugging Face: Llama, Qwen3, Qwen3-MoE."""
