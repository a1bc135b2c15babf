"""Names of what a link profile holds: communications between GPUs, and costs of the host."""

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all_reduce", "all_gather", "reduce_scatter"
BROADCAST, SEND_RECEIVE = "broadcast", "send_receive"
COMMUNICATIONS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, SEND_RECEIVE)
"""Communications that are measured. Bytes are those of the whole tensor: gathered, or before it is scattered."""

DDP_COSTS = ("ddp_step_s", "ddp_parameter_s", "ddp_bucket_s", "ddp_buffer_s")
FSDP_COSTS = ("fsdp_step_s", "fsdp_parameter_s", "fsdp_group_s", "fsdp_sgd_s", "fsdp_adamw_s")
HOST_COSTS = (*DDP_COSTS, *FSDP_COSTS)
"""Host time that DDP and FSDP2 add to a training step: for each step, parameter, bucket, buffer and group.
`fsdp_sgd_s` and `fsdp_adamw_s` are for each parameter in the step of these optimizers."""
