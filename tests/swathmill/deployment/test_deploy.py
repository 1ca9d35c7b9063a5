"""`swathmill deploy` against an imitation of `az`, and a portal that needs a while."""

import http.server
import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from portal.serving import tokens
from swathmill import cli
from swathmill.deployment.az import Az
from swathmill.deployment.choices import Choices, read_settings_given
from swathmill.deployment.deploy import deploy, preview
from swathmill.errors import ArgumentError, StackError
from tests.serving import Quiet, serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SECRETS = ("SWATHMILL_SECRET", "SWATHMILL_EARTHDATA_TOKEN", "SWATHMILL_SMTP_PASSWORD")

IMITATION = """#!{python} -IS
import json, os, sys
folder = {folder!r}
words = sys.argv[1:]
seen = {{name: value for name, value in os.environ.items() if name.startswith("SWATHMILL_")}}
with open(folder + "/calls", "a") as calls:
    calls.write(json.dumps([words, seen]) + "\\n")
answers = json.load(open(folder + "/answers"))
for begin, answer in sorted(answers.items(), key=lambda one: -len(one[0])):
    if " ".join(words).startswith(begin):
        if isinstance(answer, str):
            sys.exit(answer)
        print(json.dumps(answer))
        break
"""


@dataclass(frozen=True, kw_only=True)
class Azure:
    """What the imitation answers, and what it was asked."""

    folder: Path
    az: Az

    def answers(self, **changes: object) -> None:
        """Answer calls that begin with these words (`_` for a space)."""
        known = json.loads((self.folder / "answers").read_text())
        known |= {name.replace("_", " "): answer for name, answer in changes.items()}
        (self.folder / "answers").write_text(json.dumps(known))

    def calls(self) -> list[tuple[str, dict[str, str]]]:
        """All calls: their words, and the settings in their environment."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [(" ".join(words), seen) for words, seen in map(json.loads, lines)]

    def call(self, begin: str) -> tuple[str, dict[str, str]]:
        """The one call that begins so."""
        (found,) = (one for one in self.calls() if one[0].startswith(begin))
        return found


class _Portal(Quiet, http.server.BaseHTTPRequestHandler):
    looks = 0

    def do_GET(self) -> None:
        type(self).looks += 1
        self.send_response(200 if self.path == "/healthz" and self.looks > 2 else 503)
        self.end_headers()


@pytest.fixture
def portal_url() -> Iterator[str]:
    """A portal that answers 503 twice, and then 200."""
    handler = type("Portal", (_Portal,), {})
    with serving(http.server.HTTPServer(("127.0.0.1", 0), handler)) as address:
        yield address


@pytest.fixture
def azure(tmp_path: Path, portal_url: str, monkeypatch: pytest.MonkeyPatch) -> Azure:
    for name in ("SWATHMILL_SECRET", "SWATHMILL_SOURCES", "SWATHMILL_ARCHIVE"):
        monkeypatch.delenv(name, raising=False)
    program = tmp_path / "bin" / "az"
    program.parent.mkdir()
    program.write_text(IMITATION.format(python=sys.executable, folder=str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    (tmp_path / "calls").touch()
    (tmp_path / "answers").write_text("{}")
    made = Azure(folder=tmp_path, az=Az(ROOT))
    made.answers(
        group_exists=True,
        keyvault_list=[],
        deployment_group_create=_outputs(
            registryName="acr",
            registryServer="acr.example",
            portalUrl=portal_url,
            portalName="swathmill-portal",
        ),
    )
    return made


def _outputs(**values: str) -> dict[str, object]:
    return {"properties": {"outputs": {name: {"value": one} for name, one in values.items()}}}


def choices(**changes: object) -> Choices:
    given: dict[str, object] = {
        "group": "mill",
        "location": "westeurope",
        "operator": "ada@example.org",
        "sources": "cmr",
    }
    return Choices(**(given | changes))  # type: ignore[arg-type]


def run(azure: Azure, wanted: Choices | None = None) -> object:
    return deploy(azure.az, wanted or choices(), lambda _text: None, patience=30.0, pause=0.01)


def test_registry_image_and_the_rest_follow_each_other(azure: Azure, portal_url: str) -> None:
    made = deploy(azure.az, choices(), lambda _text: None, patience=30.0, pause=0.01)
    steps = [words for words, _ in azure.calls()]
    order = [
        "group create --name mill --location westeurope",
        "deployment group create --resource-group mill --name swathmill-registry",
        "acr build --registry acr --image swathmill:",
        "deployment group create --resource-group mill --name swathmill --parameters",
    ]
    places = [next(n for n, one in enumerate(steps) if one.startswith(step)) for step in order]
    assert places == sorted(places)
    assert "--file infra/Containerfile" in azure.call("acr build")[0]
    _, given = azure.call(order[-1])
    assert given["SWATHMILL_DEPLOY_IMAGE"].startswith(
        f"acr.example/swathmill:{version('swathmill')}-"
    )
    assert given["SWATHMILL_DEPLOY_REGISTRY"] == "acr.example"
    assert made.url == portal_url


def test_the_link_signs_in_the_operator_with_the_key_that_was_deployed(azure: Azure) -> None:
    made = deploy(azure.az, choices(), lambda _text: None, patience=30.0, pause=0.01)
    secret = azure.call("deployment group create --resource-group mill --name swathmill --p")[1]
    (token,) = parse_qs(urlsplit(made.link).query)["token"]
    person = tokens.read(secret["SWATHMILL_SECRET"], token, use=tokens.Use.LINK)
    assert person == tokens.Person(owner="ada@example.org", role=tokens.Role.OPERATOR)
    assert len(secret["SWATHMILL_SECRET"]) >= tokens.SHORTEST_SECRET


def test_no_secret_is_on_a_command_line(azure: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"hidden-{name}-{'x' * 32}")
    run(azure)
    assert not [words for words, _ in azure.calls() if "hidden-" in words]


def test_a_vault_with_a_key_keeps_it(azure: Azure) -> None:
    azure.answers(
        keyvault_list=[{"id": "/the/vault"}], rest={"value": [{"name": "signing-secret"}]}
    )
    made = deploy(azure.az, choices(), lambda _text: None, patience=30.0, pause=0.01)
    _, given = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert given["SWATHMILL_DEPLOY_KEEP_SECRETS"] == "true"
    assert given["SWATHMILL_DEPLOY_RECOVER_VAULT"] == "false"
    assert given["SWATHMILL_SECRET"] == ""
    assert made.link == ""
    assert "swathmill sign-in ada@example.org --role operator" in made.command


def test_a_vault_without_a_key_gets_one(azure: Azure) -> None:
    azure.answers(keyvault_list=[{"id": "/the/vault"}], rest={"value": []})
    run(azure)
    _, given = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert given["SWATHMILL_DEPLOY_KEEP_SECRETS"] == "false"
    assert given["SWATHMILL_SECRET"]


def test_a_vault_that_was_deleted_with_its_group_is_taken_over(azure: Azure) -> None:
    deleted = {"properties": {"vaultId": "/subscriptions/1/resourceGroups/Mill/providers/x"}}
    other = {"properties": {"vaultId": "/subscriptions/1/resourceGroups/mills/providers/x"}}
    azure.answers(**{"keyvault list-deleted": [other]})
    run(azure)
    last = "deployment group create --resource-group mill --name swathmill --p"
    assert azure.call(last)[1]["SWATHMILL_DEPLOY_RECOVER_VAULT"] == "false"
    (azure.folder / "calls").write_text("")
    azure.answers(**{"keyvault list-deleted": [other, deleted]})
    run(azure)
    _, given = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert given["SWATHMILL_DEPLOY_RECOVER_VAULT"] == "true"
    assert given["SWATHMILL_DEPLOY_KEEP_SECRETS"] == "true"


def test_azure_mail_makes_its_application_once(azure: Azure) -> None:
    azure.answers(
        ad_app_list=[],
        ad_app_create={"appId": "app"},
        ad_sp_create={"id": "principal"},
        ad_app_credential={"password": "made"},
    )
    run(azure, choices(azure_mail=True))
    _, given = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert given["SWATHMILL_DEPLOY_MAIL_APPLICATION"] == "app"
    assert given["SWATHMILL_DEPLOY_MAIL_PRINCIPAL"] == "principal"
    assert given["SWATHMILL_SMTP_PASSWORD"] == "made"
    (azure.folder / "calls").write_text("")
    azure.answers(ad_app_list=[{"appId": "app"}], ad_sp_list=[{"id": "principal"}])
    run(azure, choices(azure_mail=True))
    assert not [words for words, _ in azure.calls() if words.startswith("ad app create")]
    _, again = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert again["SWATHMILL_DEPLOY_MAIL_APPLICATION"] == "app"
    assert "SWATHMILL_SMTP_PASSWORD" not in again


def test_entra_registers_once_and_leads_back_to_the_portal(azure: Azure, portal_url: str) -> None:
    azure.answers(
        ad_app_list=[],
        ad_app_create={"appId": "app"},
        ad_sp_create={"id": "principal"},
        ad_app_credential={"password": "made"},
        account_show={"tenantId": "tenant"},
        cloud_show={"endpoints": {"activeDirectory": "https://login.chinacloudapi.cn/"}},
    )
    own = {"SWATHMILL_OIDC_CLAIMS": "sub,groups"}
    run(azure, choices(entra=True, operators="group", settings=own))
    _, given = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert given["SWATHMILL_OIDC_CLIENT_SECRET"] == "made"
    assert json.loads(given["SWATHMILL_DEPLOY_SETTINGS"]) == {
        "SWATHMILL_OIDC_ISSUER": "https://login.chinacloudapi.cn/tenant/v2.0",
        "SWATHMILL_OIDC_CLIENT_ID": "app",
        "SWATHMILL_OIDC_CLAIMS": "sub,groups",
        "SWATHMILL_OIDC_OPERATORS": "group",
    }
    words = [said for said, _ in azure.calls()]
    back = f"ad app update --id app --web-redirect-uris {portal_url}/sign-in/provider/back"
    (at,) = (n for n, said in enumerate(words) if said.startswith(back))
    made = [n for n, said in enumerate(words) if said.startswith("deployment group create")]
    assert at > max(made)  # the address is known once the portal is there
    assert any("--set groupMembershipClaims=SecurityGroup" in said for said in words)
    assert not any("made" in said for said in words)  # no secret among arguments

    (azure.folder / "calls").write_text("")
    azure.answers(ad_app_list=[{"appId": "app", "web": {"redirectUris": []}}], ad_sp_list=[{}])
    run(azure, choices(entra=True))  # after one that failed before the portal was there
    words = [said for said, _ in azure.calls()]
    assert not [said for said in words if "app create" in said or "sp create" in said]
    _, again = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert again["SWATHMILL_OIDC_CLIENT_SECRET"] == "made"

    (azure.folder / "calls").write_text("")
    azure.answers(ad_app_list=[{"appId": "app", "web": {"redirectUris": ["https://x/back"]}}])
    run(azure, choices(entra=True))
    words = [said for said, _ in azure.calls()]
    assert not [said for said in words if "app create" in said or "credential" in said]
    _, again = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert "SWATHMILL_OIDC_CLIENT_SECRET" not in again


def test_what_if_changes_nothing(azure: Azure) -> None:
    preview(azure.az, choices())
    said = [words for words, _ in azure.calls()]
    assert [words for words in said if "what-if" in words]
    assert not [words for words in said if " create" in words or " build" in words]


def test_what_if_is_had_as_json(azure: Azure, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"status": "Succeeded", "changes": []}
    azure.answers(**{"deployment_group_what-if": changes})
    assert preview(azure.az, choices(), as_json=True) == [changes, changes]
    assert capsys.readouterr().out == ""
    asked = [words for words, _ in azure.calls() if "what-if" in words]
    assert all("--no-pretty-print --output json" in words for words in asked)


@pytest.mark.parametrize("known", [[], [{"appId": "app"}]])
def test_what_if_has_the_settings_of_sign_in(azure: Azure, known: list[dict[str, str]]) -> None:
    azure.answers(
        ad_app_list=known,
        account_show={"tenantId": "tenant"},
        cloud_show={"endpoints": {"activeDirectory": "https://login.example"}},
    )
    preview(azure.az, choices(entra=True, operators="group"))
    _, given = azure.call("deployment group what-if --resource-group mill --name swathmill --p")
    settings = json.loads(given["SWATHMILL_DEPLOY_SETTINGS"])
    assert settings["SWATHMILL_OIDC_ISSUER"] == "https://login.example/tenant/v2.0"
    assert settings["SWATHMILL_OIDC_OPERATORS"] == "group"
    assert settings["SWATHMILL_OIDC_CLIENT_ID"] == ("app" if known else "to-be-registered")
    said = [words for words, _ in azure.calls()]
    changing = (" create", " update", " credential", " build")
    assert not [words for words in said if any(word in words for word in changing)]


def test_a_service_that_does_not_come_up_is_an_error_with_its_answer(azure: Azure) -> None:
    with pytest.raises(StackError, match="status 503"):
        deploy(azure.az, choices(), lambda _text: None, patience=0.02, pause=0.01)


def test_a_call_that_fails_says_what_az_said(azure: Azure) -> None:
    azure.answers(group_create="ERROR: Please run 'az login' to setup account.")
    with pytest.raises(StackError, match="not signed in"):
        run(azure)
    azure.answers(group_create="ERROR: The location is not available.")
    with pytest.raises(StackError, match=r"`az group create` failed: ERROR: The location"):
        run(azure)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"group": "mill."}, "resource group"),
        ({"name": "Mill"}, "name of the service"),
        ({"size": "huge"}, "huge"),
        ({"sources": ""}, "--sources cmr"),
        ({"sources": "folder"}, "--archive"),
        ({"sources": "cmr", "archive": "abfs://granules/modis"}, "--sources folder,cmr"),
        ({"sources": "folder", "account": "/subscriptions/1"}, "--archive-share"),
        ({"sources": "folder", "account": "modis", "share": "granules"}, "resource id"),
    ],
)
def test_choices_that_cannot_be_are_refused_before_anything_is_made(
    azure: Azure, changes: dict[str, object], names: str
) -> None:
    with pytest.raises(ArgumentError, match=names):
        run(azure, choices(**changes))
    assert azure.calls() == []


@pytest.mark.parametrize(
    ("pair", "names"),
    [
        ("NOTHING=1", "no such setting"),
        ("HISTORY_DAYS=90", "no such setting"),
        ("RESULT_DAYS", "no such setting"),
        ("RESULT_DAYS=-1", "greater than or equal"),
        ("STORAGE=file:/data", "itself"),
        ("OTEL_EXPORTER_OTLP_HEADERS=authorization=abc", "no such setting"),
    ],
)
def test_a_setting_that_cannot_be_set_is_refused(pair: str, names: str) -> None:
    with pytest.raises(ArgumentError, match=names):
        read_settings_given([pair])


def test_settings_reach_the_parameter_file_as_one_document(azure: Azure) -> None:
    settings = read_settings_given(
        ["RESULT_DAYS=60", "SWATHMILL_SANDBOX=limits", "OTEL_TRACES_SAMPLER_ARG=0.1"]
    )
    run(azure, choices(settings=settings))
    _, given = azure.call("deployment group create --resource-group mill --name swathmill --p")
    assert json.loads(given["SWATHMILL_DEPLOY_SETTINGS"]) == {
        "SWATHMILL_RESULT_DAYS": "60",
        "SWATHMILL_SANDBOX": "limits",
        "OTEL_TRACES_SAMPLER_ARG": "0.1",
    }


def test_the_command_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("deploy", "mill", "--location", "westeurope", "--operator", "ada@example.org")
    monkeypatch.setenv("PATH", str(tmp_path))
    for more, code, says in (
        ((), 2, "No source of granules"),
        (("--sources", "cmr"), 1, "The command az is absent."),
    ):
        monkeypatch.setattr(sys, "argv", ["swathmill", *words, *more])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == code
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "0.0", "0.00", "0e1"])
def test_a_number_is_written_one_way(text: str) -> None:
    """The template opens storage to links unless their minutes are 0."""
    given = read_settings_given([f"RESULT_LINK_MINUTES={text}"])
    assert given == {"SWATHMILL_RESULT_LINK_MINUTES": "0"}
