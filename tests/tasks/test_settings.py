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


@pytest.mark.parametrize("name", ["PORTAL_HOST", "PORTAL_PORT", "PROBE_PORT", "RUNNER_HOST"])
def test_an_old_name_of_an_address_is_told(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The process would listen where nobody set it to."""
    monkeypatch.setenv(f"SWATHMILL_{name}", "8001")
    new = f"Write SWATHMILL_{name.partition('_')[0]}_ADDRESS=HOST:PORT"
    with pytest.raises(WrongSettingError, match=new):
        read_settings()
