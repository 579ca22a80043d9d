"""Tuning and training: from shards, a method and a seed to a trained state and its history.

ask(...) is what the plan says of a job: its files, specification and code.
"""


rule tune:
    """Choose a run's settings by validation on a separate cut; a killed job keeps its trials."""
    input:
        shards=ancient(ask(path, "shards")),
        manifest=ask(path, "manifest"),
        weights=ask(PLAN.weights),
    output:
        trials=path("trials"),
        choice=path("choice"),
    log:
        path("tune_log"),
    priority: turn("tune")
    conda:
        "../envs/train.yaml"
    threads: WORKERS
    resources:
        scripts=SCRIPTS,
        gpu=GPUS,
        mem_mb=memory("train"),
        runtime=tuning_minutes,
        # Resources and not params: see rule train.
        device=config["device"],
        executor=config["executor"],
        weights=optional_input("weights"),
        tuning=ask(path, "tuning"),
    params:
        spec=ask(PLAN.spec_option, "tune"),
        code=ask(PLAN.code, "tune"),
    shell:
        "python {resources.scripts:q}/tune.py --spec {params.spec:q} --code {params.code}"
        " --shards {input.shards:q} --manifest {input.manifest:q} {resources.weights}"
        " --trials {output.trials:q} --choice {output.choice:q}"
        " --checkpoints {resources.tuning:q} --device {resources.device}"
        " --gpus {resources.gpu} --executor {resources.executor} >> {log:q} 2>&1"


rule tunings:
    """All choices of settings; run it second: if choices come out unchanged, no run is repeated."""
    input:
        PLAN.files("choice", "trials"),
    localrule: True


rule train:
    """Train one method on one federation with one seed; a killed run continues where it stopped."""
    input:
        shards=ancient(ask(path, "shards")),
        manifest=ask(path, "manifest"),
        weights=ask(PLAN.weights),
        choice=ask(PLAN.choice),
    output:
        state=path("state"),
        history=path("history"),
    log:
        path("train_log"),
    priority: turn("train")
    conda:
        "../envs/train.yaml"
    # Threads work on different clients, so their number changes no bit of the result.
    threads: WORKERS
    resources:
        scripts=SCRIPTS,
        gpu=GPUS,
        mem_mb=memory("train"),
        runtime=minutes("train"),
        # Resources, not params, because they do not affect the result.
        device=config["device"],
        executor=config["executor"],
        weights=optional_input("weights"),
        choice=optional_input("choice"),
        # No output, because the folder stays if the run fails.
        checkpoints=ask(path, "checkpoints"),
    params:
        spec=ask(PLAN.spec_option, "train"),
        code=ask(PLAN.code, "train"),
    shell:
        "python {resources.scripts:q}/train.py --spec {params.spec:q} --code {params.code}"
        " --shards {input.shards:q} --manifest {input.manifest:q} {resources.weights}"
        " {resources.choice} --state {output.state:q} --history {output.history:q}"
        " --checkpoints {resources.checkpoints:q} --device {resources.device}"
        " --gpus {resources.gpu} --executor {resources.executor} >> {log:q} 2>&1"
