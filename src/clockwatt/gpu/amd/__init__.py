"""AMD GPUs, read through amdsmi."""
