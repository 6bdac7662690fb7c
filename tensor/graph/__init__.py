"""The tensor graph: one shape of node, hash-consed."""

assert __name__ == "tlc.tensor.graph"
