"""Training: shards, a method and a seed to a trained state and its history."""


rule train:
    """Train one method on one federation with one seed; a killed run goes on where it stopped."""
    input:
        shards=ancient(partition_file("shards")),
        manifest=partition_file("manifest"),
        weights=weights_receipt,
    output:
        state=path("state"),
        history=path("history"),
    log:
        path("train_log"),
    benchmark:
        path("train_benchmark")
    priority: turn("train")
    conda:
        "../envs/train.yaml"
    # Each works on clients of its own, so that their number does not change a bit of the result.
    threads: WORKERS
    resources:
        scripts=SCRIPTS,
        gpu=0 if config["device"] == "cpu" else 1,
        mem_mb=memory("train"),
        runtime=minutes("train"),
        # Resources and not params, because they are how a result is computed and not which.
        device=config["device"],
        executor=config["executor"],
        weights=optional_input("weights"),
        checkpoints=checkpoints,
    params:
        spec=spec("train"),
        code=code("train"),
    shell:
        COMMANDS["train"]
