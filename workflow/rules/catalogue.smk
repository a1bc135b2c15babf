"""
Which operations the campaign's networks consist of. No GPU is needed: networks are traced on the meta device.

REQUIRED INPUTS:

    none beside the campaign's networks, passes and optimizer

OUTPUTS:

    operations  results/catalogue/operations.parquet    unique operations: what is measured
    calls       results/catalogue/calls.parquet         every call of every network, in order
    networks    results/catalogue/networks.parquet      the networks themselves
"""


rule catalogue:
    """Trace every network in every pass."""
    output:
        operations=at("catalogue/operations.parquet"),
        calls=at("catalogue/calls.parquet"),
        networks=at("catalogue/networks.parquet"),
    log:
        at("logs/catalogue.log"),
    benchmark:
        at("benchmarks/catalogue.tsv")
    conda:
        "../../envs/torch.yaml"
    resources:
        **stage_resources("catalogue"),
    params:
        results=results_dir,
        settings=campaigns.catalogue_settings(campaign),
        code=run.code.stages["catalogue"],
    shell:
        """
        python -m clockwatt catalogue \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --output-dir {params.results:q}/catalogue \
            >{log:q} 2>&1
        """
