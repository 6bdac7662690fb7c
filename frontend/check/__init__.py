"""The checker: from the AST to the typed AST. `check` is the door; `session.py` says how the work is divided."""

# The first line of imports registers what its files check with `body.py`.
from tlc.frontend.check import assign, blocks, calls, comprehensions, expressions, operators, statements, subscripts
from tlc.frontend.check.session import check

assert __name__ == "tlc.frontend.check", "import this package as tlc.frontend.check"

__all__ = ["assign", "blocks", "calls", "check", "comprehensions", "expressions", "operators", "statements", "subscripts"]
