"""The failure of a service while a program runs: a message for its user, no fault of the compiler."""

from __future__ import annotations


class RuntimeStop(Exception):
    """Stops the program with status 1. The message is lower case, without a full stop; the caller adds the place."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
