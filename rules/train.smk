"""Training: shards, a method and a seed to a trained state and its history; and before, tuning."""


rule tune:
    """Choose a run's settings by validation on a cut of its own; a killed job keeps its trials."""
    input:
        shards=ancient(partition_file("shards")),
        manifest=partition_file("manifest"),
        weights=weights_receipt,
    output:
        trials=path("trials"),
        choice=path("choice"),
    log:
        path("tune_log"),
    benchmark:
        path("tune_benchmark")
    priority: turn("tune")
    conda:
        "../envs/train.yaml"
    threads: WORKERS
    resources:
        scripts=SCRIPTS,
        gpu=0 if config["device"] == "cpu" else 1,
        mem_mb=memory("train"),
        runtime=tuning_minutes,
        # Resources and not params: see rule train.
        device=config["device"],
        executor=config["executor"],
        weights=optional_input("weights"),
        tuning=lambda wildcards: path("tuning", **wildcards),
    params:
        spec=spec("tune"),
        code=code("tune"),
    shell:
        COMMANDS["tune"]


rule tunings:
    """All choices of settings; run it second, and a choice that comes out as before trains nothing."""
    input:
        PLAN.tuned("choice"),
    localrule: True


rule train:
    """Train one method on one federation with one seed; a killed run goes on where it stopped."""
    input:
        shards=ancient(partition_file("shards")),
        manifest=partition_file("manifest"),
        weights=weights_receipt,
        choice=lambda wildcards: PLAN.choice(**wildcards),
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
        choice=optional_input("choice"),
        checkpoints=checkpoints,
    params:
        spec=spec("train"),
        code=code("train"),
    shell:
        COMMANDS["train"]
