"""For continuous integration."""


localrules:
    verify,


rule verify:
    """Fail and name the causes unless the evidence of this machine is complete, fresh and right."""
    log:
        "logs/verify.log",
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} verify 2> >(tee {log:q} >&2)"
