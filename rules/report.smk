"""Tables and figures from the tidy metrics, and the report that shows them together."""


rule table:
    """A table of the paper, with the published numbers beside the reproduced ones."""
    input:
        metrics=path("metrics"),
        clients=path("clients"),
        published=published_files("table"),
    output:
        table_csv=path("table_csv"),
        table_md=path("table_md"),
        table_tex=path("table_tex"),
        table_json=path("table_json"),
    log:
        path("table_log"),
    priority: turn("table")
    localrule: True
    conda:
        "../envs/report.yaml"
    resources:
        scripts=SCRIPTS,
        published=optional_input("published"),
    params:
        spec=ask(PLAN.spec_option, "table"),
        code=ask(PLAN.code, "table"),
    shell:
        "python {resources.scripts:q}/table.py --spec {params.spec:q} --code {params.code}"
        " --metrics {input.metrics:q} --clients {input.clients:q} {resources.published}"
        " --csv {output.table_csv:q} --md {output.table_md:q} --tex {output.table_tex:q}"
        " --json {output.table_json:q} >> {log:q} 2>&1"


rule figure:
    """A figure of the paper."""
    input:
        metrics=path("metrics"),
        clients=path("clients"),
        published=published_files("figure"),
    output:
        figure_pdf=path("figure_pdf"),
        figure_png=path("figure_png"),
        figure_svg=path("figure_svg"),
        figure_json=path("figure_json"),
    log:
        path("figure_log"),
    priority: turn("figure")
    localrule: True
    conda:
        "../envs/report.yaml"
    resources:
        scripts=SCRIPTS,
        published=optional_input("published"),
    params:
        spec=ask(PLAN.spec_option, "figure"),
        code=ask(PLAN.code, "figure"),
    shell:
        "python {resources.scripts:q}/figure.py --spec {params.spec:q} --code {params.code}"
        " --metrics {input.metrics:q} --clients {input.clients:q} {resources.published}"
        " --pdf {output.figure_pdf:q} --png {output.figure_png:q} --svg {output.figure_svg:q}"
        " --json {output.figure_json:q} >> {log:q} 2>&1"


rule report:
    """All tables and figures on one page, REPORT.md, and the same for the browser."""
    input:
        tables=PLAN.files("table_csv", "table_json"),
        figures=PLAN.files("figure_pdf", "figure_png", "figure_svg", "figure_json"),
        histories=PLAN.files("history"),
        templates=[os.path.relpath(file) for file in templates(CHECKOUT)],
    output:
        report=path("report"),
        report_html=path("report_html"),
    log:
        path("report_log"),
    localrule: True
    conda:
        "../envs/report.yaml"
    resources:
        scripts=SCRIPTS,
        results=path("results"),
        figures=path("figures"),
    params:
        spec=ask(PLAN.spec_option, "report"),
        code=ask(PLAN.code, "report"),
    shell:
        "python {resources.scripts:q}/report.py --spec {params.spec:q} --code {params.code}"
        " --results {resources.results:q} --figures {resources.figures:q}"
        " --md {output.report:q} --html {output.report_html:q} >> {log:q} 2>&1"
