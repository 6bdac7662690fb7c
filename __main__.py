"""`python -m tlc` is `tlc`."""

from tlc.driver.start import entry

if __name__ == "__main__":
    entry()
