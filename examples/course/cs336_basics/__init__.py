"""Assignment 1: a language model and what trains it."""
