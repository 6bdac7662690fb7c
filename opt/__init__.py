"""The passes over SSA, as one ordered table."""

assert __name__ == "tlc.opt"
