"""Where batches come from: splits, order, seeding, loading, the data container."""

from trainlattice.data.splits import Splits, TensorData, TensorFields

__all__ = ["Splits", "TensorData", "TensorFields"]
