"""Attention: its definition, what is timed of it, ways to run it, and how far each may be off."""
