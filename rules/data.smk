"""Raw files and federations: a data set cut into clients."""


rule download:
    """Get the official files of a data set, or of pretrained weights; the receipt lists them.

    A change of their entries in fedlib/data/downloads/ (in `spec`) repeats the job.
    """
    output:
        path("receipt"),
    log:
        path("download_log"),
    localrule: True
    conda:
        "../envs/train.yaml"
    resources:
        scripts=SCRIPTS,
        download=1,
        # Resources, not params, because other values must not repeat the job: see rule train.
        raw=config["raw"],
        mirror=option("mirror", config["mirror"] or ""),
    params:
        spec=ask(PLAN.spec_option, "download"),
        code=ask(PLAN.code, "download"),
    shell:
        "python {resources.scripts:q}/download.py {wildcards.dataset}"
        " --code {params.code} --raw {resources.raw:q} --receipt {output:q} {resources.mirror}"
        " >> {log:q} 2>&1"


rule partition:
    """Cut a data set into clients. Later jobs depend on the manifest, which has all digests."""
    input:
        raw_receipt,
    output:
        shards=path("shards"),
        manifest=path("manifest"),
    log:
        path("partition_log"),
    priority: turn("partition")
    conda:
        "../envs/train.yaml"
    resources:
        scripts=SCRIPTS,
        mem_mb=memory(),
        raw=config["raw"],
    params:
        spec=ask(PLAN.spec_option, "partition"),
        code=ask(PLAN.code, "partition"),
    shell:
        "python {resources.scripts:q}/partition.py --spec {params.spec:q}"
        " --code {params.code} --raw {resources.raw:q} --shards {output.shards:q}"
        " --manifest {output.manifest:q} >> {log:q} 2>&1"


rule download_all:
    """All jobs that need a network connection."""
    input:
        PLAN.files("receipt"),
    localrule: True


rule partitions:
    """Shards and weights, as needed; run it first: if they are as before, no run is repeated."""
    input:
        PLAN.files("manifest"),
        NEEDS,
    localrule: True
