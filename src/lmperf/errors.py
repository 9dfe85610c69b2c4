"""The one exception that a person is meant to read."""


class UserError(Exception):
    """Bad input, said in one line: what is wrong, where, and what would be right.

    The command line prints the line and exits with code 2.
    """
