"""``python -m trainlattice``."""

from trainlattice.cli.main import main

main()
