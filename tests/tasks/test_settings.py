"""Addresses among the settings, and how a value that cannot be used is told."""

import pytest

from tasks.settings import Settings, WrongSettingError, host_and_port, read_settings


@pytest.mark.parametrize(
    ("address", "split"),
    [("0.0.0.0:8001", ("0.0.0.0", 8001)), ("portal:80", ("portal", 80)), ("[::1]:0", ("::1", 0))],
)
def test_an_address_is_a_host_and_a_port(address: str, split: tuple[str, int]) -> None:
    assert host_and_port(address) == split


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORTAL_ADDRESS", ""),
        ("PORTAL_ADDRESS", "127.0.0.1"),
        ("PROBE_ADDRESS", "8001"),
        ("PROBE_ADDRESS", ":8001"),
        ("RUNNER_ADDRESS", ""),
        ("RUNNER_ADDRESS", "localhost:65536"),
        ("REDUCTION_POOL", "pool:x"),
        ("REDUCTION_POOL", "pool:0"),
    ],
)
def test_a_wrong_address_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"SWATHMILL_{name}", value)
    with pytest.raises(WrongSettingError, match=r"it (is not HOST:PORT|has no port)\.") as wrong:
        read_settings()
    assert f"SWATHMILL_{name} is {value!r}; it cannot be used: " in wrong.value.problem


def test_no_address_for_probes_or_a_pool_means_none() -> None:
    made = Settings(probe_address="", reduction_pool="")
    assert (made.probe_address, made.reduction_pool) == ("", "")


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("PORTAL_HOST", "PORTAL_ADDRESS=HOST:PORT"),
        ("PROBE_PORT", "PROBE_ADDRESS=HOST:PORT"),
        ("RUNNER_HOST", "RUNNER_ADDRESS=HOST:PORT"),
        ("SMTP_HOST", "SMTP_URL=smtp+starttls://USER@HOST:PORT"),
        ("CONFIRM_GB", "CONFIRM='tasks=50000 gb=500 core-hours=2000 cost=100'"),
        ("SCALE_MOST", "SCALE_SLOTS=LEAST-MOST"),
        ("BLOCK_MIB", "BLOCKS=MIBxCOUNT"),
        ("HEARTBEAT_SECONDS", "LEASE_SECONDS=SECONDS"),
        ("OIDC_OWNER_CLAIM", "OIDC_CLAIMS=OWNER,GROUPS"),
    ],
)
def test_an_old_name_is_told_with_the_new(
    monkeypatch: pytest.MonkeyPatch, name: str, new: str
) -> None:
    """The process would do something else than it was set to."""
    monkeypatch.setenv(f"SWATHMILL_{name}", "8001")
    with pytest.raises(WrongSettingError) as wrong:
        read_settings()
    assert f"SWATHMILL_{name} is no more" in wrong.value.problem
    assert f"Write SWATHMILL_{new}, and unset it" in wrong.value.remedy


def test_a_worker_beats_six_times_within_the_silence_that_loses_it() -> None:
    assert Settings(lease_seconds=30.0).heartbeat_seconds == 5.0


def test_prices_are_no_setting_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWATHMILL_PRICES", "core-hour=0.05")
    with pytest.raises(WrongSettingError) as wrong:
        read_settings()
    assert wrong.value.remedy.startswith("Run `swathmill prices core-hour=AMOUNT")
