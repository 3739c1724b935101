"""Renderings of a Report: pure functions, one module a format."""
