"""Make a report from evidence: pages, tables and figures, in Markdown, HTML and other formats.

Data flows one way: `judging` judges rows once, `pairs` compares them, `gains` says the result,
`rows` is what templates say of them, `tables` and `figures` show them, `render` fills the
templates. A module of `sections` has the selections and calculations of one template. Nothing here
imports torch, so a report renders anywhere.
"""
