"""The standard library of TL, in TL."""

assert __name__ == "tlc.stdlib"
