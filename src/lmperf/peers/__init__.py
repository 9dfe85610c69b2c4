"""Implementations of other projects, one module each, in the form of a custom implementation.

Each imports its package at the first call, so that a broken package fails only its own rows.
"""
