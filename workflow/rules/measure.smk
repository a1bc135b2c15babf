"""
Measuring: one job per GPU, operating point and shard. What is finished lies in results/store, which no rule declares:
Snakemake removes what a failed job declared, and a job that runs again takes from there what it measured before.

REQUIRED INPUTS:

    operations  results/catalogue/operations.parquet
    networks    results/catalogue/networks.parquet
    calls       results/catalogue/calls.parquet

OUTPUTS:

    calibration     results/measurements/{gpu}/{point}/calibration.parquet      sensors, idle power, host costs
    measurements    results/measurements/{gpu}/{point}/{shard}.parquet          operations
                    results/measurements/{gpu}/{point}/networks-{shard}.parquet whole networks
    telemetry       a file telemetry-* beside each file of measurements
"""


rule calibrate:
    """Find out what sensors, idle power and costs of calls are like, once per GPU and operating point."""
    input:
        # any catalogue will do: a network more does not calibrate anew (by name: ancient() marks the object it is given)
        operations=ancient(at("catalogue/operations.parquet")),
    output:
        calibration=at("measurements/{gpu}/{point}/calibration.parquet"),
    log:
        at("logs/measurements/{gpu}/{point}/calibration.log"),
    benchmark:
        at("benchmarks/measurements/{gpu}/{point}/calibration.tsv")
    priority: shuffled("calibrate")
    conda:
        "../../envs/torch.yaml"
    resources:
        **GPU_RESOURCES,
    params:
        results=results_dir,
        settings=calibration_settings,
    shell:
        """
        python -m clockwatt calibrate \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --point {wildcards.point:q} \
            --catalogue-dir {params.results:q}/catalogue \
            --output {output.calibration:q} \
            >{log:q} 2>&1
        """


rule measure:
    """Measure a shard of the operations."""
    input:
        operations=rules.catalogue.output.operations,
        calibration=rules.calibrate.output.calibration,
    output:
        measurements=at("measurements/{gpu}/{point}/{shard}.parquet"),
        telemetry=at("measurements/{gpu}/{point}/telemetry-{shard}.parquet"),
    log:
        at("logs/measurements/{gpu}/{point}/{shard}.log"),
    benchmark:
        at("benchmarks/measurements/{gpu}/{point}/{shard}.tsv")
    priority: shuffled("measure")
    conda:
        "../../envs/torch.yaml"
    resources:
        **GPU_RESOURCES,
    params:
        results=results_dir,
        settings=shard_settings(campaign.shards),
        shards=campaign.shards,
    shell:
        """
        python -m clockwatt measure \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --point {wildcards.point:q} \
            --shard {wildcards.shard:q}/{params.shards:q} \
            --catalogue-dir {params.results:q}/catalogue \
            --store-dir {params.results:q}/store \
            --calibration {input.calibration:q} \
            --output {output.measurements:q} \
            >{log:q} 2>&1
        """


rule measure_networks:
    """Measure a shard of the whole networks."""
    input:
        operations=rules.catalogue.output.operations,
        calibration=rules.calibrate.output.calibration,
        calls=rules.catalogue.output.calls,
        networks=rules.catalogue.output.networks,
    output:
        measurements=at("measurements/{gpu}/{point}/networks-{shard}.parquet"),
        telemetry=at("measurements/{gpu}/{point}/telemetry-networks-{shard}.parquet"),
    log:
        at("logs/measurements/{gpu}/{point}/networks-{shard}.log"),
    benchmark:
        at("benchmarks/measurements/{gpu}/{point}/networks-{shard}.tsv")
    priority: shuffled("measure_networks")
    conda:
        "../../envs/torch.yaml"
    resources:
        **GPU_RESOURCES,
    params:
        results=results_dir,
        settings=shard_settings(campaign.network_shards),
        shards=campaign.network_shards,
    shell:
        """
        python -m clockwatt measure \
            --config "$CLOCKWATT_RUN"/config.yaml \
            --gpu {wildcards.gpu:q} \
            --point {wildcards.point:q} \
            --shard {wildcards.shard:q}/{params.shards:q} \
            --catalogue-dir {params.results:q}/catalogue \
            --store-dir {params.results:q}/store \
            --calibration {input.calibration:q} \
            --output {output.measurements:q} \
            --networks \
            >{log:q} 2>&1
        """
