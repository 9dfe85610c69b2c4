"""What a continuous check calls."""


localrules:
    verify,


rule verify:
    """Fails, naming the causes, unless the evidence of the machine at hand is whole and right."""
    log:
        "logs/verify.log",
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} verify 2> >(tee {log:q} >&2)"
