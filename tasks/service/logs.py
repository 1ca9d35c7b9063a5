"""Structured logs: one JSON object a line, with request, task, attempt and worker where known."""

import logging
import sys

import structlog

from tasks.service import tracing


def configure(level: str, **fields: str) -> None:
    """Log JSON lines to stderr; `fields` (process, worker) stand on each of them.

    The standard library's records (Celery's, Azure's) come out the same way.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]

    def static(
        _logger: structlog.typing.WrappedLogger, _name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if tracing.is_on() and isinstance(request := event.get("request"), str):
            event["trace_id"] = tracing.trace_of(request)
        return {**fields, **event}

    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                static,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Some of these would also log whole addresses, which may be signed, or what keys are sent.
    for noisy in (
        "azure",
        "urllib3",
        "httpx",
        "httpcore",
        "botocore",
        "aiobotocore",
        "s3fs",
        "kombu",
        "celery.worker.strategy",
        "celery.app.trace",
    ):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
