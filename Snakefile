"""From a configuration to a write-up: check -> measure -> write up -> overview.

    snakemake --cores 1 report/report.md           measure what is due here, and write it up
    snakemake --cores 1 report/MACHINE/report.md   write up evidence that is already here
    snakemake --cores 1 attention                  measure one benchmark; with -R attention: all of it
    snakemake --cores 1 repeatability              measure some rows a second time
    snakemake --cores 1 site                       build site/ from the evidence in report/
    snakemake --cores 1 verify                     fail, with the causes, unless all is right
    snakemake --workflow-profile profiles/slurm    the same on a cluster: docs/setup.md
    snakemake --report report.zip                  figures, pages and the DAG, after a run

`rules/common.smk` finds out what is due from the keys in the evidence, not from Snakemake's records.
A dry run lists what is due and changes no file of the checkout.
"""


# First, because it rejects a bad configuration in one line before Snakemake reads the file.
include: "rules/common.smk"


configfile: str(CONFIGFILE)


# `snakemake --report` opens on it.
report: "rules/captions/workflow.rst"


rule all:
    """The write-up of this machine."""
    default_target: True
    input:
        f"{REPORT}/report.md",


include: "rules/measure.smk"
include: "rules/write_up.smk"
include: "rules/site.smk"
include: "rules/verify.smk"


onstart:
    begin_run()


onsuccess:
    print_summary()
