"""Traces of some steps by torch.profiler, for chrome://tracing or https://ui.perfetto.dev."""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile, schedule

from trainlattice.training.callbacks import Callback
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.files import run_directory
from trainlattice_plugin_callbacks.options import ProfilerOptions


class Profiler(Callback):
    """``profiler/step-00000005.json`` after the last step of each cycle. After the last cycle, and where the run
    ends, the profiler is gone."""

    def __init__(self, options: ProfilerOptions) -> None:
        self.options = options
        self.cycles = options.repeat
        self.steps = 0
        self.profile: profile | None = None

    def on_run_start(self, trainer: Trainer) -> None:
        self._start(trainer, self.options.skip_first)

    def on_step_end(self, trainer: Trainer) -> None:
        if self.profile is None:
            return
        self.profile.step()
        self.steps -= 1
        if not self.steps:
            self._stop()
            if self.cycles:
                self._start(trainer, 0)

    def finalize(self, trainer: Trainer, error: BaseException | None) -> None:
        """A cycle that is under way is written as far as it went."""
        self._stop()

    def _start(self, trainer: Trainer, skip: int) -> None:
        """One for each cycle: one for several keeps the events of earlier cycles, or warns that it does not."""
        options = self.options
        activities = [ProfilerActivity.CPU]
        if trainer.strategy.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)

        def write(found: profile) -> None:
            name = f"step-{trainer.state.global_step:08d}.json"
            found.export_chrome_trace(str(run_directory(trainer, "profiler") / name))

        wait = skip + options.wait
        self.steps = wait + options.warmup + options.active
        self.cycles -= 1
        self.profile = profile(
            activities=activities,
            schedule=schedule(wait=wait, warmup=options.warmup, active=options.active, repeat=1),
            on_trace_ready=write,
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
        )
        self.profile.start()

    def _stop(self) -> None:
        running, self.profile = self.profile, None
        if running is not None:
            running.stop()
