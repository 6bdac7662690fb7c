"""The command line and the pipeline."""

assert __name__ == "tlc.driver"
