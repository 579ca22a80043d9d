"""Tables and figures from the tidy metrics, and the report that shows them together."""


rule table:
    """A table of the paper, with the published numbers beside the reproduced ones."""
    input:
        metrics=path("metrics"),
        clients=path("clients"),
        published=published("table"),
    output:
        csv=report(
            path("table_csv"),
            caption="captions/table.rst",
            category=paper_title,
            subcategory="Tables",
            labels=exhibit_labels("table", "csv"),
        ),
        md=path("table_md"),
        tex=path("table_tex"),
        json=path("table_json"),
    log:
        path("table_log"),
    benchmark:
        path("table_benchmark")
    priority: turn("table")
    conda:
        "../envs/report.yaml"
    resources:
        published=optional_input("published"),
    params:
        spec=spec("table"),
        code=code("table"),
    shell:
        "python scripts/table.py --spec @/dev/stdin --code {params.code}"
        " --metrics {input.metrics:q} --clients {input.clients:q} {resources.published}"
        " --csv {output.csv:q} --md {output.md:q} --tex {output.tex:q} --json {output.json:q}"
        " <<< {params.spec:q} >> {log:q} 2>&1"


rule figure:
    """A figure of the paper."""
    input:
        metrics=path("metrics"),
        clients=path("clients"),
        published=published("figure"),
    output:
        pdf=path("figure_pdf"),
        png=report(
            path("figure_png"),
            caption="captions/figure.rst",
            category=paper_title,
            subcategory="Figures",
            labels=exhibit_labels("figure", "png"),
        ),
        svg=path("figure_svg"),
        json=path("figure_json"),
    log:
        path("figure_log"),
    benchmark:
        path("figure_benchmark")
    priority: turn("figure")
    conda:
        "../envs/report.yaml"
    resources:
        published=optional_input("published"),
    params:
        spec=spec("figure"),
        code=code("figure"),
    shell:
        "python scripts/figure.py --spec @/dev/stdin --code {params.code}"
        " --metrics {input.metrics:q} --clients {input.clients:q} {resources.published}"
        " --pdf {output.pdf:q} --png {output.png:q} --svg {output.svg:q}"
        " --json {output.json:q}"
        " <<< {params.spec:q} >> {log:q} 2>&1"


rule report:
    """All tables and figures on one page, REPORT.md, and the same for the browser."""
    input:
        tables=PLAN.exhibits("table_csv", "table_json"),
        figures=PLAN.exhibits("figure_pdf", "figure_png", "figure_svg", "figure_json"),
        histories=[PLAN.path("history", **cell._asdict()) for cell in PLAN.cells()],
        templates=[os.path.relpath(file) for file in templates(CHECKOUT)],
    output:
        md=path("report"),
        html=path("report_html"),
    log:
        path("report_log"),
    benchmark:
        path("report_benchmark")
    conda:
        "../envs/report.yaml"
    resources:
        results=path("results"),
        figures=path("figures"),
    params:
        spec=spec("report"),
        code=code("report"),
    shell:
        "python scripts/report.py --spec @/dev/stdin --code {params.code}"
        " --results {resources.results:q} --figures {resources.figures:q}"
        " --md {output.md:q} --html {output.html:q} <<< {params.spec:q} >> {log:q} 2>&1"
