"""Cache groups, blocks and the rows they hold."""
