"""
All measurements of the campaign in one file per kind, corrected per card, checked and flagged. Nothing is dropped silently.

REQUIRED INPUTS:

    measurements    results/measurements/{gpu}/{point}/{shard}.parquet and networks-{shard}.parquet
    calibrations    results/measurements/{gpu}/{point}/calibration.parquet
    operations      results/catalogue/operations.parquet
    calls           results/catalogue/calls.parquet
    networks        results/catalogue/networks.parquet
    references      resources/reference/{name}/         measured data that the project ships, where the campaign names any

OUTPUTS:

    operations      results/dataset/operations.parquet
    networks        results/dataset/networks.parquet
    anchors         results/dataset/anchors.parquet     anchor operations: how cards and hours differ
    calibration     results/dataset/calibration.parquet
    catalogue       results/dataset/catalogue/*.parquet operations, calls and networks of all these rows
    quality         results/dataset/quality.json        how many rows, how many of them doubtful, and why
"""


rule dataset:
    """Join and check the measurements."""
    input:
        measurements=measurement_files,
        calibrations=calibration_files,
        operations=rules.catalogue.output.operations,
        calls=rules.catalogue.output.calls,
        networks=rules.catalogue.output.networks,
    output:
        operations=at("dataset/operations.parquet"),
        networks=at("dataset/networks.parquet"),
        anchors=at("dataset/anchors.parquet"),
        calibration=at("dataset/calibration.parquet"),
        catalogue=[f"{RESULTS}/dataset/catalogue/{name}" for name in layout.CATALOGUE_FILES],
        quality=at("dataset/quality.json"),
    log:
        at("logs/dataset.log"),
    benchmark:
        at("benchmarks/dataset.tsv")
    conda:
        "../../envs/analysis.yaml"
    resources:
        **stage_resources("dataset"),
    params:
        results=results_dir,
        settings=campaigns.dataset_settings(campaign),
        references=run.code.references,
        code=run.code.stages["dataset"],
    shell:
        """
        python -m clockwatt dataset \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --measurements-dir {params.results:q}/measurements \
            --catalogue-dir {params.results:q}/catalogue \
            --output-dir {params.results:q}/dataset \
            >{log:q} 2>&1
        """
