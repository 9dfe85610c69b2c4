"""The configuration, `config/config.yaml`: read and validated before anything runs.

`read` gives either a valid `model.Config` or a `UserError`: one line with the file, the key, the
value found and the values that are allowed.
"""
