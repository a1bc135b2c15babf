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
        measurements=[f"results/measurements/{path}" for path in campaign.measurement_files()],
        calibrations=[f"results/measurements/{path}" for path in campaign.calibration_files()],
        operations=rules.catalogue.output.operations,
        calls=rules.catalogue.output.calls,
        networks=rules.catalogue.output.networks,
        references=reference_files,
    output:
        operations="results/dataset/operations.parquet",
        networks="results/dataset/networks.parquet",
        anchors="results/dataset/anchors.parquet",
        calibration="results/dataset/calibration.parquet",
        catalogue=[f"results/dataset/catalogue/{name}" for name in CATALOGUE_FILES],
        quality="results/dataset/quality.json",
    log:
        "results/logs/dataset.log",
    conda:
        "../../envs/analysis.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        settings=campaigns.dataset_settings(campaign),
        code=fingerprint("dataset"),
    shell:
        """
        python -m clockwatt dataset \
            --config results/config.yaml \
            --measurements-dir results/measurements \
            --catalogue-dir results/catalogue \
            --output-dir results/dataset \
            >{log} 2>&1
        """
