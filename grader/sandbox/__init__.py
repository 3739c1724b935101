"""The two processes: a trusted side that asks, a confined worker that answers with values."""
