"""Host SSA as x86-64 machine code: selection, encoding, object files, loading."""

assert __name__ == "tlc.backends.x86"
