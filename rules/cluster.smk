"""For a cluster: what its nodes are. See docs/cluster.md."""


rule detect:
    """Look up the hardware of a node, once for each partition and after an update of its software."""
    log:
        "logs/detect.log",
    resources:
        **({"slurm_partition": PARTITION} if PARTITION else {}),
        gpu=0 if config.get("preset") == "cpu" else 1,
        runtime=5,
        mem_mb=2000,
    params:
        lmperf=LMPERF,
    shell:
        "{params.lmperf:q} detect > {log:q} 2> >(tee -a {log:q} >&2)"
