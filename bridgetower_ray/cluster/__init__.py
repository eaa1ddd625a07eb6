"""Carrying a sweep out: the Ray cluster, the Tune run, each trial's actor and its ranks. Only this room imports Ray."""
