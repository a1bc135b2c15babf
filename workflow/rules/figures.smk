"""
Figures, each as PNG and PDF with its data as CSV; `snakemake --report results/index.html` puts them on one page with the
question that each answers and its caption.

REQUIRED INPUTS:

    dataset     results/dataset/*
    predictors  results/predictors/*
    validation  results/validation/*
    telemetry   results/measurements/{gpu}/{point}/telemetry-networks-*.parquet

OUTPUTS:

    figures     results/figures/*.png, *.pdf and *.csv
"""


rule figures:
    """Draw all figures."""
    input:
        dataset=rules.dataset.output,
        predictors=rules.fit.output,
        validation=rules.validate.output,
        telemetry=telemetry_of_networks,
    output:
        png=[
            report(
                f"{RESULTS}/figures/{name}.png",
                caption=f"../report/{family}.rst",
                category="Figures",
                labels={"question": QUESTIONS[family], "pass": pass_ or "both"},
            )
            for name, (family, pass_) in FIGURES.items()
        ],
        pdf=expand(at("figures/{name}.pdf"), name=FIGURES),
        csv=expand(at("figures/{name}.csv"), name=FIGURES),
    log:
        at("logs/figures.log"),
    benchmark:
        at("benchmarks/figures.tsv")
    conda:
        "../../envs/analysis.yaml"
    resources:
        **stage_resources("figures"),
    params:
        results=results_dir,
        settings=campaigns.figures_settings(campaign),
        code=run.code.stages["figures"],
    shell:
        """
        python -m clockwatt figures \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --measurements-dir {params.results:q}/measurements \
            --dataset-dir {params.results:q}/dataset \
            --predictors-dir {params.results:q}/predictors \
            --validation-dir {params.results:q}/validation \
            --output-dir {params.results:q}/figures \
            >{log:q} 2>&1
        """
