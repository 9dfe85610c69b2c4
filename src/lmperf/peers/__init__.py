"""Implementations of other projects, a module each, in the form that a user's own has.

Each imports its package when it is first called, not before: a package that is installed and broken
is a row with its reason, and stands in nobody's way.
"""
