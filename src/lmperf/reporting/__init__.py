"""From the evidence of a machine to its report: tables, figures and claims in Markdown.

Nothing here imports torch: a report renders on a machine without it.
"""
