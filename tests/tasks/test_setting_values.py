"""Values of settings that have parts: what is read, and how a refusal says what to write."""

import pytest

from tasks import setting_values
from tasks.setting_values import READERS, Blocks, ClaimNames, Confirm, Slots, SmtpServer
from tasks.settings import Settings, WrongSettingError, read_settings


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("", None),
        ("smtp://mail", SmtpServer(host="mail", port=25)),
        ("smtp://mail:2525", SmtpServer(host="mail", port=2525)),
        (
            "smtp+starttls://me@example.org@mail.example.org",
            SmtpServer(host="mail.example.org", port=587, user="me@example.org", tls="starttls"),
        ),
        (
            "smtps://a%7Cb@mail.example.org/",
            SmtpServer(host="mail.example.org", port=465, user="a|b", tls="tls"),
        ),
        ("smtp://[::1]:2525", SmtpServer(host="::1", port=2525)),
    ],
)
def test_a_mail_server_is_a_url(url: str, server: SmtpServer | None) -> None:
    assert Settings(smtp_url=url).smtp == server


@pytest.mark.parametrize("name", ["us#er", "us?er"])
def test_a_sign_that_ends_a_host_leads_to_no_other_server(name: str) -> None:
    with pytest.raises(ValueError, match="%23"):
        SmtpServer.read(f"smtp://{name}@mail.example.org")


def test_amounts_that_are_not_named_keep_their_default() -> None:
    assert Confirm.read("cost=7, tasks=2") == Confirm(tasks=2, cost=7)
    assert Confirm.read(str(Confirm())) == Confirm()
    assert Confirm.read(Settings().confirm) == Confirm()


def test_a_block_has_so_many_mebibytes() -> None:
    largest = setting_values._LARGEST_BLOCK
    assert Blocks.read(f"{largest}x1").mib == 64
    with pytest.raises(ValueError, match="blocks of 64 at most"):
        Blocks.read(f"{largest + 1}x1")


def test_the_others_are_read() -> None:
    assert Slots.read("2-40") == Slots(least=2, most=40)
    assert Slots.read("3-") == Slots(least=3)
    assert Blocks.read("64x1") == Blocks(mib=64, at_once=1)
    assert Blocks.read("") == Blocks()
    assert ClaimNames.read("sub, roles") == ClaimNames(owner="sub", groups="roles")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("smtp_url", "mail.example.org", "smtp+starttls://"),
        ("smtp_url", "http://mail", "smtp+starttls://"),
        ("smtp_url", "smtp://", "smtp+starttls://"),
        ("smtp_url", "smtp://mail:0", "port 0"),
        ("smtp_url", "smtp://mail/inbox", "smtp+starttls://"),
        ("smtp_url", "smtp://mail:70000", "ort"),
        ("smtp_url", "smtp://me:word@mail", "SWATHMILL_SMTP_PASSWORD alone"),
        ("confirm", "disk=1", "'disk=1' is not one of tasks=AMOUNT gb=AMOUNT"),
        ("confirm", "gb=free", "'gb=free' has no number"),
        ("confirm", "gb=-1", "is not zero or more"),
        ("confirm", "gb=nan", "is not zero or more"),
        ("confirm", "500", "'500' is not one of tasks=AMOUNT"),
        ("scale_slots", "40", "LEAST-MOST"),
        ("scale_slots", "4-3", "LEAST-MOST"),
        ("scale_slots", "0-0", "LEAST-MOST"),
        ("blocks", "65x1", "blocks of 64 at most"),
        ("blocks", "8x0", "MIBxCOUNT"),
        ("oidc_claims", "email", "two claims"),
        ("oidc_claims", "a,b,c", "two claims"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_to_write_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(f"SWATHMILL_{name.upper()}", value)
    with pytest.raises(WrongSettingError) as wrong:
        read_settings()
    assert says in wrong.value.problem


def test_each_reader_is_of_a_setting_whose_default_it_reads() -> None:
    for name, reader in READERS.items():
        reader.read(Settings.model_fields[name].default)
