"""Machine IR and register allocation."""

assert __name__ == "tlc.regalloc"
