"""`python -m clockwatt` is the command line."""

from clockwatt.cli.main import run

if __name__ == "__main__":
    run()
