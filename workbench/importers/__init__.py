"""Results of other tools as stored runs: a module a tool, `catalogue` knows them all."""
