"""First rows of public request traces; SOURCES.md names them and their licences."""
