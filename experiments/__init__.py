"""Questions about an engine and how to ask them: yields records, writes nothing."""
