"""The error that ./setup shows."""


class Failure(Exception):
    """An error with its remedy, for the user."""
