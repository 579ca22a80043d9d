"""Evaluation: from a trained state to counts per client, and from runs to a tidy table."""


rule evaluate:
    """Score the final state of a run on all clients, unseen ones included."""
    input:
        shards=ancient(partition_file("shards")),
        manifest=partition_file("manifest"),
        weights=weights_receipt,
        state=path("state"),
        history=path("history"),
        settled=settled_run,
    output:
        path("evaluation"),
    log:
        path("evaluate_log"),
    priority: turn("evaluate")
    conda:
        "../envs/train.yaml"
    threads: WORKERS
    resources:
        scripts=SCRIPTS,
        gpu=0 if config["device"] == "cpu" else 1,
        mem_mb=memory("evaluate"),
        runtime=minutes("evaluate"),
        device=config["device"],
        executor=config["executor"],
        weights=optional_input("weights"),
        settled=optional_input("settled"),
        # Cleared here, because Snakemake now knows that the training is complete.
        checkpoints=checkpoints,
    params:
        spec=spec("evaluate"),
        code=code("evaluate"),
    shell:
        COMMANDS["evaluate"]


rule metrics:
    """All runs of a paper as one tidy table, and one with a row per client."""
    input:
        histories=run_files("history"),
        evaluations=run_files("evaluation"),
        trials=lambda wildcards: PLAN.tuned("trials", **wildcards),
    output:
        metrics=path("metrics"),
        metrics_csv=path("metrics_csv"),
        clients=path("clients"),
    log:
        path("metrics_log"),
    priority: turn("metrics")
    conda:
        "../envs/report.yaml"
    resources:
        scripts=SCRIPTS,
        mem_mb=memory(),
        runs=lambda wildcards: path("runs", **wildcards),
    params:
        spec=spec("metrics"),
        code=code("metrics"),
    shell:
        COMMANDS["metrics"]
