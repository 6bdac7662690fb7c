"""Where `tlc` starts: Ctrl-C is answered from the first line on, while the rest is still being loaded."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def entry() -> None:
    """The console script."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else somebody asked for silence
        signal.signal(signal.SIGINT, _leave)
    from tlc.driver.cli import entry as run

    signal.signal(signal.SIGINT, usual)
    run()


def _leave(*_: object) -> None:
    """End at once: an exception would come out of half-loaded modules, which take it for a fault of their own."""
    os.write(2, b"error: stopped by Ctrl-C\n")
    os._exit(INTERRUPTED)
