"""Calculations that several sections share: how train steps compare, what bounds a time."""
