"""Serves tokens: models, caches, scheduler, speculation, replicas."""
