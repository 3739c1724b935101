"""The autograder of the course "The KV cache, by hand"."""

__version__ = "0.1.0"
