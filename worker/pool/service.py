"""The process of a runner: no storage, no Redis, no secret; and its orderly end."""

import os
import signal
import socket
import sys
import threading
from functools import partial

import structlog
from pydantic import SecretStr

from reprojection.errors import KernelsAbsentError
from reprojection.kernels import kernels
from tasks.errors import SwathmillError
from tasks.service import exits, logs
from tasks.settings import Settings, WrongSettingError, host_and_port, read_settings
from worker.files.host_folders import HostFolders
from worker.files.scratch import Scratch
from worker.pool.runner import Runner, RunnerServer
from worker.sandbox import sandbox
from worker.sandbox.children import PRELOADED, Children, start_forkserver
from worker.sandbox.makers import reading_tier
from worker.sandbox.messages import ChildSettings
from worker.slots import attempt
from worker.slots.fitness_watch import FitnessWatch, test_once
from worker.slots.service import cache_folder, worker_name

_GB = 10**9
# By which a platform gives a process an identity, or a secret to get one.
_IDENTITIES = ("IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_FEDERATED_TOKEN_FILE")


def main() -> int:
    """Run a runner until SIGTERM or SIGINT; return the exit code."""
    try:
        settings = read_settings()
        refuse_secrets(settings)
        kernels.library()  # without it a task could only fail
        start_forkserver(("tasks.service.azure_clients", *PRELOADED))
        name = worker_name(settings)
        logs.configure(settings.log_level, process="runner", worker=name)
        confinement = sandbox.report(settings)
        if confinement.tier is None:
            raise WrongSettingError("No sandbox works here.", confinement.remedy)
        scratch = Scratch(settings.data_dir, name)
        folders = HostFolders(settings.data_dir, socket.gethostname())
        shared = ChildSettings(
            settings=settings,
            cache=cache_folder(settings).resolve(),
            sandbox=confinement.tier,
            reading=reading_tier(),
        )
        memory_limit = int(settings.attempt_memory_gb * _GB)
        children = Children(
            partial(attempt.prepare, shared), memory_limit, settings.slots, scratch.folder
        )
        runner = Runner(start=children.start, scratch=scratch, slots=settings.slots)
        runner.fitness.tested = False
        server = _listen(settings, runner)
    except (KernelsAbsentError, WrongSettingError) as error:
        sys.stderr.write(f"The runner cannot start: {error}\n")
        return exits.CONFIGURATION
    except SwathmillError as error:
        structlog.get_logger("worker").error(str(error))
        return exits.UNAVAILABLE
    log = structlog.get_logger("worker")
    for variable in _IDENTITIES:
        if os.environ.get(variable):
            log.warning("a runner should have no identity", variable=variable)
    scratch.clean()
    folders.remove_abandoned()
    try:
        children.fill()
        log.info("runner starts", slots=settings.slots, sandbox=confinement.line)
        FitnessWatch(
            fitness=runner.fitness,
            test=partial(test_once, scratch, children),
            ending=lambda: runner.stopping,
        ).start()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _until_asked_to_stop()
        server.shutdown()
        server.server_close()
        runner.stop(settings.grace_seconds)
    finally:
        children.close()
        scratch.close()
        folders.close()
        log.info("runner ended")
    return 0


def refuse_secrets(settings: Settings) -> None:
    """Raise WrongSettingError if this process was given a secret: it runs programs of others."""
    for name, known in Settings.model_fields.items():
        if known.annotation is SecretStr and getattr(settings, name).get_secret_value():
            variable = f"SWATHMILL_{name.upper()}"
            raise WrongSettingError(
                f"{variable} is set, and a runner holds no secret.", f"Unset {variable} for it."
            )


def _listen(settings: Settings, runner: Runner) -> RunnerServer:
    """Listen, and answer probes where the settings ask for it. Raises WrongSettingError."""
    if settings.probe_address:
        # Only where it is used: it takes part of the time in which a process starts.
        from tasks.service.probes import serve_probes
        from worker.pool.metrics import probe_answers

        serve_probes(settings, probe_answers(runner))
    try:
        return RunnerServer(*host_and_port(settings.runner_address), runner)
    except OSError as error:
        raise WrongSettingError(
            f"The setting SWATHMILL_RUNNER_ADDRESS is {settings.runner_address!r}; nothing can "
            f"listen there: {error.strerror or error}.",
            "Name an address of this machine and a port that is free (docs/settings.md).",
        ) from error


def _until_asked_to_stop() -> None:
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    asked.wait()
