"""Opens the data of a run and checks it, as far as it can be checked without a model."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

from torch.utils.data import IterableDataset

from trainlattice.config.contracts import model_problems, task_problems
from trainlattice.config.resolve import Resolution
from trainlattice.config.resolved import ResolvedComponent
from trainlattice.contracts.records import DatasetContract, LossContract, ModelContract
from trainlattice.contracts.settings import DatasetSettings
from trainlattice.data.container import BatchError
from trainlattice.data.loader import MapSource
from trainlattice.data.overfit import FirstBatches
from trainlattice.data.source import BatchSource
from trainlattice.data.splits import MapDataset, Splits, TensorData
from trainlattice.data.stream import StreamSource
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError, PluginError
from trainlattice.plugin.local import LOCAL_MODULE_PREFIX
from trainlattice.runs.targets import call_target, config_error
from trainlattice.training.losses import LossTerm, LossTerms
from trainlattice.training.targets import TargetCheck, TargetError, class_target, not_finite, outside_classes


class DataOpener:
    """The dataset of a configuration, step by step; every fault is a ConfigError at its place."""

    def __init__(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.config = resolution.config

    def splits(self) -> Splits:
        """Opens the dataset; what it yields fits the configuration as far as its contract states."""
        component = self.config.one("dataset")
        assert component is not None
        splits = call_target(self.resolution, component, seed=self.config.experiment.seed)
        if not isinstance(splits, Splits):
            raise PluginError(
                f"{component.registered.what} returned a {type(splits).__name__}, "
                "expected trainlattice.data.Splits"
            )
        for name in ("train", "val", "test"):
            split = getattr(splits, name)
            if isinstance(split, Iterator):
                raise self.no_data(
                    f"the {name} split of dataset {component.name!r} is a {type(split).__name__}, which can be "
                    "read only once; give an object whose __iter__ begins anew"
                )
            if split is not None and hasattr(split, "__len__") and len(split) == 0:
                hint = "" if name == "train" else f"; a dataset without {name} data has {name}=None"
                raise self.no_data(f"the {name} split of dataset {component.name!r} is empty{hint}")
        if splits.val is None and self.config.trainer.early_stopping is not None:
            message = f"dataset {component.name!r} has no validation data to stop early on"
            raise config_error(self.resolution, ("trainer", "early_stopping"), "contract", message)
        self.contracts(component, splits.contract)
        return splits

    def sources(
        self, splits: Splits, loss: LossTerms | None
    ) -> tuple[BatchSource, BatchSource | None, BatchSource | None]:
        """The batches of each split; those of training are shuffled."""
        component = self.config.one("dataset")
        assert component is not None
        assert isinstance(component.settings, DatasetSettings)
        settings = component.settings

        def source(name: str, *, trains: bool) -> BatchSource:
            split = getattr(splits, name)
            common: dict[str, Any] = {
                "check": self.target_check(name, split, loss, splits.contract),
                "batch_size": settings.batch_size,
                "seed": self.config.experiment.seed,
                "num_workers": settings.num_workers,
                "drop_last": settings.drop_last and trains,
                "start_method": settings.start_method,
            }
            self.require_sendable(split, settings)
            # torch gives its iterable datasets a __getitem__ that only raises.
            if isinstance(split, MapDataset) and not isinstance(split, IterableDataset):
                return MapSource(split, shuffle=trains, **common)
            return StreamSource(split, **common)

        train = source("train", trains=True)
        few = self.config.trainer.overfit_batches
        if few is not None:
            train = FirstBatches(train, few, batch_size=settings.batch_size)
        if train.batches_per_epoch == 0:
            raise self.no_data(
                f"drop_last leaves nothing of the training samples: there are fewer than batch_size "
                f"({settings.batch_size})"
            )
        val = source("val", trains=False) if splits.val is not None else None
        test = source("test", trains=False) if splits.test is not None else None
        return train, val, test

    def target_check(
        self, name: str, split: Any, loss: LossTerms | None, contract: DatasetContract
    ) -> TargetCheck | None:
        """None for data in memory, which :meth:`targets` looks at once."""
        term = _reads_targets(loss)
        if isinstance(split, TensorData) or term is None or getattr(term.loss, "task", None) is None:
            return None
        classes = contract.num_outputs if term.classifies else None
        return TargetCheck(name, term.classifies, classes, term.ignore_index)

    def require_sendable(self, split: Any, settings: DatasetSettings) -> None:
        """Loader processes that are not forked get the dataset as a pickle."""
        method = settings.start_method or multiprocessing.get_start_method()
        if settings.num_workers == 0 or method == "fork":
            return
        if type(split).__module__.startswith(LOCAL_MODULE_PREFIX):
            raise config_error(
                self.resolution,
                ("dataset", "num_workers"),
                "not-picklable",
                f"the dataset, a {type(split).__name__}, is of a local file, which loader processes that are not "
                "forked cannot import; use start_method: fork, num_workers: 0, or a package",
            )
        try:
            ForkingPickler.dumps(split)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise config_error(
                self.resolution,
                ("dataset", "num_workers"),
                "not-picklable",
                f"the dataset, a {type(split).__name__}, cannot be sent to loader processes ({error}); use "
                "module-level functions instead of lambdas, start_method: fork, or num_workers: 0",
            ) from error

    def require_validation_data(self, val: BatchSource | None) -> None:
        """A stream that yields nothing is known only when it is read: before training, not after an epoch of it."""
        if isinstance(val, StreamSource):
            self.sample_batch(val)
        trainer = self.config.trainer
        never = trainer.epochs is not None and trainer.validate_every > trainer.epochs
        if (
            val is not None
            and trainer.early_stopping is not None
            and never
            and not trainer.validate_every_steps
        ):
            message = f"the run never validates: it has {trainer.epochs} epochs, and validates every "
            raise config_error(
                self.resolution,
                ("trainer", "validate_every"),
                "contract",
                f"{message}{trainer.validate_every}; early stopping would have nothing to judge",
            )

    def no_data(self, message: str, code: str = "no-data") -> ConfigError:
        return config_error(self.resolution, ("dataset",), code, message)

    def contracts(self, dataset: ResolvedComponent, opened: DatasetContract) -> None:
        """The static comparison again, with what the opened data states."""
        problems: list[Diagnostic] = []
        model, losses, locate = self.config.one("model"), self.config.all("loss"), self.resolution.locate
        if model is not None and isinstance(model.contract, ModelContract):
            problems += model_problems(model, model.contract, dataset.name, opened, losses, locate)
        for loss in losses:
            if isinstance(loss.contract, LossContract):
                problems += task_problems(loss, loss.contract, dataset.name, opened, locate)
        if problems:
            raise ConfigError(problems)

    def targets(self, splits: Splits, loss: LossTerms | None) -> None:
        """Targets in memory are looked at once, before the run: integers of any width become int64, and a
        class that does not exist or a target that is NaN is shown with its row."""
        term = _reads_targets(loss)
        for name in ("train", "val", "test"):
            split = getattr(splits, name)
            if not isinstance(split, TensorData):
                continue
            fault = None
            try:
                if term is not None and term.classifies:
                    split.targets = class_target(split.targets)
                    if splits.contract.num_outputs is not None:
                        fault = outside_classes(split.targets, splits.contract.num_outputs, term.ignore_index)
                else:
                    fault = not_finite(split.targets)
            except TargetError as error:
                fault = str(error)
            if fault is not None:
                dataset = self.config.one("dataset")
                named = dataset.name if dataset else ""
                raise self.no_data(f"the {name} split of dataset {named!r}: {fault}", code="target")

    def sample_batch(self, source: BatchSource) -> Any:
        """Two samples, to try the models with."""
        try:
            return source.sample_batch()
        except BatchError as error:
            raise self.no_data(str(error)) from error
        except TargetError as error:
            raise self.no_data(str(error), code="target") from error


def _reads_targets(loss: LossTerms | None) -> LossTerm | None:
    """The term that says what the dataset's target is; a class, if any takes it for one."""
    terms = [term for term in (loss.terms if loss is not None else ()) if term.target_key == "target"]
    return next((term for term in terms if term.classifies), terms[0] if terms else None)
