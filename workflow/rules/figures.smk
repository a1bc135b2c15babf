"""
Figures, each as PNG and PDF; `snakemake --report results/index.html` puts them on one page with their captions.

REQUIRED INPUTS:

    dataset     results/dataset/*
    predictors  results/predictors/*
    validation  results/validation/*

OUTPUTS:

    figures     results/figures/*.png and *.pdf
"""


rule figures:
    """Draw all figures."""
    input:
        dataset=rules.dataset.output,
        predictors=rules.fit.output,
        validation=rules.validate.output,
    output:
        png=[
            report(
                f"{RESULTS}/figures/{name}.png",
                caption=f"../report/{name}.rst",
                category="Figures",
                labels={"figure": name.replace("_", " ")},
            )
            for name in FIGURES
        ],
        pdf=expand(at("figures/{name}.pdf"), name=FIGURES),
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
            --dataset-dir {params.results:q}/dataset \
            --predictors-dir {params.results:q}/predictors \
            --validation-dir {params.results:q}/validation \
            --output-dir {params.results:q}/figures \
            >{log:q} 2>&1
        """
