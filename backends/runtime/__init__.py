"""The services behind compiled code: printing, progress, data, stop flags."""

assert __name__ == "tlc.backends.runtime"
