"""`python -m clockwatt` is the command line."""

from clockwatt.cli.main import main

if __name__ == "__main__":
    main()
