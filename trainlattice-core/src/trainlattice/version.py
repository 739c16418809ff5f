"""The version of trainlattice-core."""

__version__ = "0.1.0"
