"""The command line as `python -m lapwing`."""

from lapwing.cli.main import run

if __name__ == "__main__":
    run()
