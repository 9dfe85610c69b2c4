"""Peers: implementations of other projects, one module each, with a custom implementation's form.

Each module imports its package at the first call: a broken package fails only that peer's rows.
"""
