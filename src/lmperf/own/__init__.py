"""The user's code: load it, ask its signature, make it comparable, try it, find it.

Nothing in here changes a number of the project's own implementations, so keys of their rows leave
this package out. Rows of other implementations count the modules that adapt them: see
`kinds.Taken`.
"""
