"""The topics of the report: one module each, with the stem of its CSV and of its template."""
