"""
All measurements of the campaign in one file per kind, corrected per card, checked and flagged. Nothing is dropped silently.

REQUIRED INPUTS:

    measurements    results/measurements/{gpu}/{point}/{shard}.parquet and networks-{shard}.parquet
    calibrations    results/measurements/{gpu}/{point}/calibration.parquet
    operations      results/catalogue/operations.parquet
    networks        results/catalogue/networks.parquet

OUTPUTS:

    operations      results/dataset/operations.parquet
    networks        results/dataset/networks.parquet
    anchors         results/dataset/anchors.parquet     anchor operations: how cards and hours differ
    calibration     results/dataset/calibration.parquet
    quality         results/dataset/quality.json        how many rows, how many of them doubtful, and why
"""


rule dataset:
    """Join and check the measurements."""
    input:
        measurements=[f"results/measurements/{path}" for path in layout.measurement_files(campaign)],
        calibrations=[f"results/measurements/{path}" for path in layout.calibration_files(campaign)],
        operations=rules.catalogue.output.operations,
        networks=rules.catalogue.output.networks,
    output:
        operations="results/dataset/operations.parquet",
        networks="results/dataset/networks.parquet",
        anchors="results/dataset/anchors.parquet",
        calibration="results/dataset/calibration.parquet",
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
