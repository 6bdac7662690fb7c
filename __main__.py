"""`python -m tlc` is `tlc`."""

from tlc.driver.cli import entry

if __name__ == "__main__":
    entry()
