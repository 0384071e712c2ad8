"""Small floats and their scales, and the block-scaled weights of a released checkpoint."""
