"""Hosts that packages may connect to: how they are named, and which addresses they may have."""

import pytest
from pydantic import ValidationError

from tasks.network_hosts import MOST_HOSTS, Endpoint, read_allowed, read_endpoint
from tasks.packages.packages import Package
from tasks.settings import Settings


def test_a_host_has_the_port_of_https_unless_it_names_another() -> None:
    assert read_endpoint("Data.Example.org.") == Endpoint("data.example.org", 443)
    assert read_endpoint("cache:8443") == Endpoint("cache", 8443)
    assert str(read_endpoint("cache:8443")) == "cache:8443"


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "127.1", "010.0.0.1", "1.2.3.4:443"),
        *("[::1]", "::1", "[::1]:443", "fe80::1%eth0"),
        *("", "*", "*.example.org", "a..b", "-a.org", "a_b.org", "a b", "a@b", "a/b", "http://a"),
        *("a:0", "a:65536", "a:", "a:443:443", "a:+1", "a.org\n", "a" * 64, ".".join(["a"] * 130)),
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="addresses cannot be named"):
        read_endpoint(text)
    with pytest.raises(ValidationError, match="network"):
        Package(name="own", command=("x",), outputs=("a.txt",), network=(text,))


def test_a_name_and_a_port_are_as_long_and_high_as_protocols_have_them() -> None:
    """`_MOST_NAME` (RFC 1035, without the dot at the end) and `_MOST_PORT`."""
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert len(longest) == 253
    named = (f"{longest}:65535",)
    assert Package(name="own", command=("x",), outputs=("a",), network=named).network == named
    assert read_endpoint(f"{longest}.:65535") == Endpoint(longest, 65535)
    for wrong in (f"{longest}c", f"{longest}c.", f"{longest}:65536"):
        with pytest.raises(ValueError, match="is not a host's name"):
            read_endpoint(wrong)


def test_a_package_names_32_hosts_at_most() -> None:
    hosts = tuple(f"h{number}.org" for number in range(33))
    assert MOST_HOSTS == 32
    assert Package(name="own", command=("x",), outputs=("a",), network=hosts[:32]).network
    with pytest.raises(ValidationError, match="at most 32 items"):
        Package(name="own", command=("x",), outputs=("a",), network=hosts)


@pytest.mark.parametrize(
    ("address", "permitted"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("168.63.129.16", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1", False),
        ("fd00:ec2::254", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::5db8:d70e", True),
        ("2002:7f00:1::1", False),
    ],
)
def test_a_host_has_a_public_address(address: str, permitted: bool) -> None:
    assert read_allowed("data.example.org").permits(address) is permitted


def test_a_network_of_the_operator_permits_private_addresses() -> None:
    allowed = read_allowed("data.example.org, cache:8443, 10.1.0.0/16, fd12::/16")
    assert allowed.refused(["data.example.org", "cache:8443"]) == ()
    assert allowed.refused(["cache", "other.org"]) == ("cache", "other.org")
    assert all(map(allowed.permits, ("10.1.2.3", "fd12::1", "::ffff:10.1.2.3")))
    assert not any(map(allowed.permits, ("10.2.0.1", "127.0.0.1")))


@pytest.mark.parametrize("wrong", ["10.0.0.1", "10.0.0.1/8", "a b"])
def test_a_wrong_list_is_refused_as_a_setting(wrong: str) -> None:
    with pytest.raises(ValidationError):
        Settings(network_hosts=wrong)


def test_by_default_nothing_is_allowed() -> None:
    assert Settings(network_hosts="").allowed_hosts.refused(["example.org"]) == ("example.org",)
