"""Machine code, and the services that it calls."""

assert __name__ == "tlc.backends"
