"""The errors that this package raises on purpose."""


class BridgetowerRayError(Exception):
    """Base of every error raised here; its text is one line a person can act on."""


class UsageError(BridgetowerRayError):
    """What was asked cannot be done as asked: a sweep file, an argument, a store. Exit status 2."""


class TrialError(BridgetowerRayError):
    """A trial cannot give a number; the sweep goes on without it."""


class NodeError(TrialError):
    """No trial of its kind can run on this node, whatever its other settings."""
