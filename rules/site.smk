"""The site: every write-up and page as HTML."""


localrules:
    site,


rule site:
    """Build the site from the evidence that is there; nothing is measured."""
    log:
        "logs/site.log",
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} site 2> >(tee {log:q} >&2)"
