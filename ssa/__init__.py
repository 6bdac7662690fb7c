"""The SSA form: its IR, text, verifier and interpreter, and its construction from the typed AST."""

assert __name__ == "tlc.ssa"
