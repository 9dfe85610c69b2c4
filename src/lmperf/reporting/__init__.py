"""Make reports from evidence: findings, tables and figures as Markdown and other formats.

Nothing here imports torch: a report can be rendered on a machine without it.
"""

import pandas

# Without this, pandas would store text differently where pyarrow is installed.
pandas.set_option("mode.string_storage", "python")
