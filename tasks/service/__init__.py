"""What a process needs to run: clients of servers, backup, logs, probes, tracing."""
