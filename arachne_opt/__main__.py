"""``python -m arachne_opt``, the same as ``arachne``."""

from arachne_opt.cli.main import main

if __name__ == "__main__":
    main()
