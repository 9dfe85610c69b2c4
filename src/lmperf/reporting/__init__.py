"""From the evidence of a machine to its report: tables, figures and claims in Markdown.

Nothing here imports torch: a report renders on a machine without it.
"""

import pandas

# Texts behave as on a machine without pyarrow, which pandas would take for them where it is there.
pandas.set_option("mode.string_storage", "python")
