"""Serve the portal with the settings in the environment: `python -m portal`."""

import gc
import resource
import sys
import threading

from fastapi import FastAPI

from portal.app import create_app
from portal.http_server import Server, server_config
from portal.serving.portal import Portal
from processes.ready import say_ready
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.operators.overhead import OverheadMeter
from tasks.service import exits, logs, telemetry
from tasks.service.connect import SettingMissingError, connect
from tasks.settings import Settings, WrongSettingError, host_and_port, read_settings

_FILES = 65_536  # open at once: each page that follows a request keeps a connection


def main() -> int:
    """Serve until the process is asked to stop; return the exit status."""
    _raise_file_limit()
    try:
        settings = read_settings()
        logs.configure(settings.log_level, process="portal")
        runtime = connect(settings)
        OverheadMeter(runtime).begin()
        end_telemetry = telemetry.start(telemetry.read_collector(), "portal")
        host, port = host_and_port(settings.portal_address)
        observed = bool(settings.probe_address)
        app = _observed(settings, runtime) if observed else create_app(settings, runtime)
    except (ValueError, WrongSettingError, SettingMissingError) as error:
        sys.stderr.write(f"The portal cannot start: {error}\n")
        return exits.CONFIGURATION
    except StoreError as error:
        sys.stderr.write(f"The portal cannot start: storage does not answer: {error}\n")
        return exits.UNAVAILABLE
    config = server_config(
        app,
        proxies=settings.trusted_proxies,
        host=host,
        port=port,
        log_config=None,
    )
    portal: Portal = app.state.portal
    looking = threading.Thread(
        target=portal.manager.keep_looking, args=(portal.stopping,), name="manager", daemon=True
    )
    looking.start()
    portal.redis.start()
    server = Server(config, portal.stopping, say_ready)
    # What was made until now stays. Looking for garbage in it would hold up all calls for a tenth
    # of a second, again and again.
    gc.collect()
    gc.freeze()
    server.run()
    end_telemetry()
    return 0 if server.started else exits.UNAVAILABLE


def _raise_file_limit() -> None:
    """Allow this process as many open files as it may have; 1,024 are usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _observed(settings: Settings, runtime: Runtime) -> FastAPI:
    """Build the portal, and answer probes. Raises ValueError and WrongSettingError."""
    # Only where it is used: it takes part of the time in which a process starts.
    from portal.operations.metrics import PortalMetrics
    from tasks.service.probes import serve_probes

    metrics = PortalMetrics()
    app = create_app(settings, runtime, metrics.count)
    portal: Portal = app.state.portal
    serve_probes(settings, metrics.probe_answers(portal.manager, portal.stopping))
    return app


if __name__ == "__main__":
    sys.exit(main())
