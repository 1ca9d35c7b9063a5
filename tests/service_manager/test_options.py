"""What the manager goes by is what the settings say, also where they say nothing."""

from service_manager.options import ManagerOptions
from tasks.bag.time_limits import TimeLimits
from tasks.bag.transitions import RetryPolicy
from tasks.settings import Settings


def test_defaults_are_those_of_the_settings() -> None:
    assert ManagerOptions.of(Settings(), "manager") == ManagerOptions()
    assert TimeLimits.of(Settings()) == TimeLimits()
    assert RetryPolicy.of(Settings()) == RetryPolicy()


def test_what_follows_from_other_settings() -> None:
    made = ManagerOptions.of(Settings(lease_seconds=12.0, retry_base=0.5), "manager")
    assert (made.sweep, made.resend, made.patience) == (12.0, 12.0, 3.0)
    assert made.retry.delay(retries=30, jitter=0.5) == 60.0
    assert made.retry.most == made.retry.longest
