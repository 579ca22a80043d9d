"""Evaluation: from a trained state to counts per client, and from runs to a tidy table."""


rule evaluate:
    """Score the final state of a run on all clients, unseen ones included."""
    input:
        shards=ancient(ask(path, "shards")),
        manifest=ask(path, "manifest"),
        weights=ask(PLAN.weights),
        state=path("state"),
        history=path("history"),
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
        gpu=GPUS,
        mem_mb=memory("evaluate"),
        runtime=minutes("evaluate"),
        device=config["device"],
        executor=config["executor"],
        weights=optional_input("weights"),
        # Cleared here, because Snakemake now knows that the training is complete.
        checkpoints=ask(path, "checkpoints"),
    params:
        spec=ask(PLAN.spec_option, "evaluate"),
        code=ask(PLAN.code, "evaluate"),
    shell:
        "python {resources.scripts:q}/evaluate.py --spec {params.spec:q}"
        " --code {params.code} --shards {input.shards:q} --manifest {input.manifest:q}"
        " {resources.weights}"
        " --state {input.state:q} --history {input.history:q}"
        " --checkpoints {resources.checkpoints:q} --out {output:q}"
        " --device {resources.device} --gpus {resources.gpu} --executor {resources.executor}"
        " >> {log:q} 2>&1"


rule metrics:
    """All runs of a paper as one tidy table, and one with a row per client."""
    input:
        histories=ask(PLAN.files, "history"),
        evaluations=ask(PLAN.files, "evaluation"),
        trials=ask(PLAN.files, "trials"),
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
        runs=ask(path, "runs"),
    params:
        spec=ask(PLAN.spec_option, "metrics"),
        code=ask(PLAN.code, "metrics"),
    shell:
        "python {resources.scripts:q}/metrics.py --spec {params.spec:q} --code {params.code}"
        " --runs {resources.runs:q} --parquet {output.metrics:q} --csv {output.metrics_csv:q}"
        " --clients {output.clients:q} >> {log:q} 2>&1"
