"""Measures time and memory of cases in worker processes.

From left to right, who imports whom:

    supervisor > process > keeper > worker > group > checks, phase_timing > case_steps > the rest
"""
