"""The DeepSeek-V4.1 text model."""
