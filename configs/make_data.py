"""Writes the data that some configurations train on.

python configs/make_data.py tensor data/tensor          random tensors, for tensor_mlp
python configs/make_data.py diabetes data/diabetes.csv  scikit-learn's diabetes, for diabetes_mlp and two_inputs
python configs/make_data.py tumours data/tumours.csv    scikit-learn's breast cancer, for multi_task
"""

import csv
import sys
from pathlib import Path


def tensor(root: Path) -> None:
    import torch

    root.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    for name, count in (("train.pt", 256), ("validation.pt", 64)):
        features = torch.randn(count, 1, 28, 28, generator=generator)
        labels = torch.randint(0, 10, (count,), generator=generator)
        torch.save({"features": features, "labels": labels}, root / name)


def diabetes(path: Path) -> None:
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*data.feature_names, "target"])
        for row, target in zip(data.data, data.target, strict=True):
            writer.writerow([*(float(value) for value in row), float(target)])


def tumours(path: Path) -> None:
    """Means over a tumour's cells, what it was diagnosed as, and the mean radius of its three largest cells."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names[:10], "largest_radius", "diagnosis"])
        for row, target in zip(data.data, data.target, strict=True):
            values = [float(value) for value in row]
            writer.writerow(
                [*values[:10], values[names.index("worst_radius")], str(data.target_names[target])]
            )


if __name__ == "__main__":
    makers = {"tensor": tensor, "diabetes": diabetes, "tumours": tumours}
    if len(sys.argv) != 3 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    makers[sys.argv[1]](Path(sys.argv[2]))
