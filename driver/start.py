"""Where `tlc` starts: Ctrl-C is answered from the first line on, while the rest is still being loaded."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130


def entry() -> None:
    """The console script."""
    for request in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(request) is signal.SIG_DFL:
            signal.signal(request, _end)
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else somebody asked for silence
        signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(500_000, 20, 50)  # a compiler makes much that lives long, so looking for what does not, seldom, pays
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy starts threads for products of matrices, which nobody here asks it for
    from tlc.driver.cli import entry as run

    signal.signal(signal.SIGINT, usual)
    try:
        run()
    except KeyboardInterrupt:  # again, while the first was being answered
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is to clean up
        gc.freeze()  # but not to look through all objects once more, which Python would: for 0.3 s behind a large program


def _end(request: int, _: object) -> None:
    """End as this signal asks, but by way of Python, which cleans up behind itself."""
    sys.exit(128 + request)


def _leave(*_: object) -> None:
    """End at once: an exception would come out of half-loaded modules, which take it for a fault of their own."""
    with suppress(OSError):
        os.write(2, b"error: stopped by Ctrl-C\n")
    os._exit(INTERRUPTED)
