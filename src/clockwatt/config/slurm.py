"""Slurm resources of jobs."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from clockwatt.config.model import Model

_KEY_OF_SBATCH_OPTION = {
    option: key
    for key, options in {
        "partition": ("-p", "--partition"),
        "gres": ("--gres",),
        "gpu": ("-G", "--gpus"),
        "runtime": ("-t", "--time"),
        "cpus_per_task": ("-c", "--cpus-per-task"),
        "mem_mb": ("--mem", "--mem-per-cpu"),
        "account": ("-A", "--account"),
        "nodelist": ("-w", "--nodelist"),
        "qos": ("-q", "--qos"),
        "constraint": ("-C", "--constraint"),
    }.items()
    for option in options
}


class SlurmResources(Model):
    """What a job of this GPU asks Slurm for."""

    partition: str | None = Field(None, description="partition to submit to", examples=["gpu"])
    gres: str | None = Field(None, description="generic resource as in `sinfo -o %G`", examples=["gpu:a30:1"])
    gpu: int | None = Field(None, ge=1, description="number of GPUs, instead of `gres`", examples=[1])
    gpu_model: str | None = Field(None, description="GPU type that goes with `gpu`", examples=["a30"])
    runtime: int = Field(120, ge=1, description="minutes of the first attempt; attempt n asks for n times as much")
    cpus_per_task: int = Field(
        4, ge=1, description="cores of a measuring job: one for timing, one for the logger, the rest for autograd"
    )
    mem_mb: int = Field(16000, ge=500, description="host memory in MB")
    account: str | None = Field(None, description="Slurm account to charge")
    nodelist: str | None = Field(
        None, description="nodes to use, such as one node, to measure a single card", examples=["gpu[01-02]"]
    )
    qos: str | None = Field(None, description="quality of service to ask for", examples=["high"])
    constraint: str | None = Field(None, description="features that the node must have", examples=["nvlink"])
    extra: str | None = Field(
        None, description="further options of sbatch, verbatim", examples=["--exclude=gpu07 --exclusive"]
    )

    @field_validator("extra")
    @classmethod
    def _extra_leaves_the_rest_alone(cls, value: str | None) -> str | None:
        for option in (value or "").split():
            key = _KEY_OF_SBATCH_OPTION.get(option.partition("=")[0])
            if key:
                raise ValueError(f"{option.partition('=')[0]} has its own key: write {key} instead")
        return value

    @model_validator(mode="after")
    def _one_way_to_ask_for_a_gpu(self) -> Self:
        if self.gres and (self.gpu or self.gpu_model):
            raise ValueError("give either gres, or gpu and gpu_model, not both")
        if self.gpu_model and not self.gpu:
            raise ValueError("gpu_model needs gpu: 1 too")
        return self
