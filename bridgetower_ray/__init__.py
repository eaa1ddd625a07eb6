"""Measure how fast BridgeTower fine-tunes on the accelerators of a Ray cluster, and why."""

__version__ = "0.1.0"
