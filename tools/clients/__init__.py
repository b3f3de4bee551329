"""Clients that other people wrote, against a running server."""
