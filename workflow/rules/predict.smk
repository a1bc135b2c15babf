"""
Predictors of time and energy, and how well whole networks come out of them.

REQUIRED INPUTS:

    dataset     results/dataset/*, and the catalogue in it

OUTPUTS:

    predictors      results/predictors/{gpu}/               models, and a card in Markdown beside each
    metrics         results/predictors/metrics.json         of which GPUs they are, and errors of the cross-validation
    crossval        results/predictors/crossval.parquet     its predictions, one by one
    left_out        results/predictors/networks-left-out.parquet    the same, each network left out
    networks        results/validation/networks.parquet     composed from operations beside measured whole
    validation      results/validation/validation.json      errors of these compositions
"""


rule fit:
    """Fit predictors to the dataset and cross-validate them."""
    input:
        dataset=rules.dataset.output,
    output:
        # update: a fit that fails leaves these as they were, beside the predictors that they are about
        metrics=update(at("predictors/metrics.json")),
        crossval=update(at("predictors/crossval.parquet")),
        left_out=update(at("predictors/networks-left-out.parquet")),
    log:
        at("logs/fit.log"),
    benchmark:
        at("benchmarks/fit.tsv")
    conda:
        "../../envs/analysis.yaml"
    threads: campaigns.STAGES["fit"].cores
    resources:
        **stage_resources("fit"),
    params:
        results=results_dir,
        settings=campaigns.part(campaign, "campaign", "seed", "passes", "fit"),
        code=run.code.stages["fit"],
    shell:
        """
        python -m clockwatt fit \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --dataset-dir {params.results:q}/dataset \
            --catalogue-dir {params.results:q}/dataset/catalogue \
            --output-dir {params.results:q}/predictors \
            >{log:q} 2>&1
        """


rule validate:
    """Compose whole networks from their operations and compare them with the measured ones."""
    input:
        dataset=rules.dataset.output,
        predictors=rules.fit.output,
    output:
        networks=at("validation/networks.parquet"),
        validation=at("validation/validation.json"),
    log:
        at("logs/validate.log"),
    benchmark:
        at("benchmarks/validate.tsv")
    conda:
        "../../envs/analysis.yaml"
    resources:
        **stage_resources("validate"),
    params:
        results=results_dir,
        settings=campaigns.part(campaign, "campaign", "seed", "passes", "fit"),
        code=run.code.stages["validate"],
    shell:
        """
        python -m clockwatt validate \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --dataset-dir {params.results:q}/dataset \
            --catalogue-dir {params.results:q}/dataset/catalogue \
            --predictors-dir {params.results:q}/predictors \
            --output-dir {params.results:q}/validation \
            >{log:q} 2>&1
        """
