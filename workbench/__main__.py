"""`python -m workbench`: the command without its script on the path."""

from workbench.entry import main

if __name__ == "__main__":
    main()
