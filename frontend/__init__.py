"""From source text to the typed AST: source, diagnostics, types, lexer, parser, checker."""

assert __name__ == "tlc.frontend"
