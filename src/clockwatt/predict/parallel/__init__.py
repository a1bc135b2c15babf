"""Training steps on several GPUs, predicted from the step on one GPU and a profile of the links between them."""
