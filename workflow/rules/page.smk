"""
The page of results: which GPU, which clock, and how far to trust it. One file that opens in a browser without a network.

REQUIRED INPUTS:

    dataset     results/dataset/*
    predictors  results/predictors/*
    validation  results/validation/*
    telemetry   results/measurements/{gpu}/{point}/telemetry-networks-*.parquet
    studies     main figures and tables of the studies that the campaign configures

OUTPUTS:

    page        results/explore.html
"""


rule page:
    """Write the page of results."""
    input:
        dataset=rules.dataset.output,
        predictors=rules.fit.output,
        validation=rules.validate.output,
        telemetry=telemetry_of_networks,
        studies=studies_configured,
    output:
        page=at("explore.html"),
    log:
        at("logs/page.log"),
    benchmark:
        at("benchmarks/page.tsv")
    conda:
        "../../envs/analysis.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        results=results_dir,
        studies=lambda wildcards, input: [option for path in input.studies for option in ("--study-figure", path)],
        settings=campaigns.part(campaign, "campaign", "networks", "passes", "fit"),
        code=run.code.stages["page"],
    shell:
        """
        python -m clockwatt page \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --measurements-dir {params.results:q}/measurements \
            --dataset-dir {params.results:q}/dataset \
            --predictors-dir {params.results:q}/predictors \
            --validation-dir {params.results:q}/validation \
            --output {output.page:q} \
            {params.studies:q} \
            >{log:q} 2>&1
        """
