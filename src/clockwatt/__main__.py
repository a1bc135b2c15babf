"""`python -m clockwatt` is the command line."""

from clockwatt.cli import main

if __name__ == "__main__":
    main()
