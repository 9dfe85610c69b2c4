"""From a configuration to a write-up: check -> measure -> write up -> overview.

    snakemake --cores 1 report/report.md             measure what is due here, and write it up
    snakemake --cores 1 report/MACHINE/report.md     write up evidence that is here already
    snakemake --cores 1 verify                       fail, naming the causes, unless all is right
    snakemake --report report.zip                    figures, pages and the DAG, after a run

What is due is found out in `rules/common.smk`, from the keys in the evidence and not from Snakemake's
memory. A dry run lists it and writes nothing.
"""


# Reads the configuration strictly, and refuses in one line what Snakemake would let pass.
include: "rules/common.smk"


configfile: "config/config.yaml"


report: "rules/captions/workflow.rst"


wildcard_constraints:
    machine="[a-z0-9._-]+",


rule all:
    """The write-up of the machine at hand."""
    default_target: True
    input:
        "report/report.md",


include: "rules/measure.smk"
include: "rules/write_up.smk"
include: "rules/verify.smk"


onstart:
    hold_checkout()


onsuccess:
    if "LMPERF_NO_SUMMARY" not in os.environ:  # set by `make report`, which says it itself
        print_summary()
