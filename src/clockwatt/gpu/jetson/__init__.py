"""Jetson boards, read through sysfs."""
