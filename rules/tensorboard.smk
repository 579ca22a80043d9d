"""For TensorBoard: an event file per run, where the configuration asks for them."""


rule events:
    """The curves of a run: metrics of every view, traffic and training loss, over rounds."""
    input:
        history=path("history"),
        evaluation=path("evaluation"),
    output:
        path("events"),
    log:
        path("events_log"),
    benchmark:
        path("events_benchmark")
    priority: turn("events")
    localrule: True
    conda:
        "../envs/tensorboard.yaml"
    resources:
        scripts=SCRIPTS,
        mem_mb=memory(),
    params:
        spec=spec("events"),
        code=code("events"),
    shell:
        COMMANDS["events"]
