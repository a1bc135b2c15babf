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
                f"results/figures/{name}.png",
                caption=f"../report/{name}.rst",
                category="Figures",
                labels={"figure": name.replace("_", " ")},
            )
            for name in FIGURES
        ],
        pdf=expand("results/figures/{name}.pdf", name=FIGURES),
    log:
        "results/logs/figures.log",
    conda:
        "../../envs/analysis.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        settings=campaigns.figures_settings(campaign),
        code=fingerprint("figures", resources=("gpus.yaml",)),
    shell:
        """
        python -m clockwatt figures \
            --config results/config.yaml \
            --dataset-dir results/dataset \
            --predictors-dir results/predictors \
            --validation-dir results/validation \
            --output-dir results/figures \
            >{log} 2>&1
        """
