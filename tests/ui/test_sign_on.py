"""Single sign-on in a browser: a provider of our own, with which the web UI logs in and out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.helpers.live_broker import LiveBroker
from tests.helpers.oauth_provider import CLIENT_ID, LoginProvider
from tests.ui.visit import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCOPE = "rabbitmq.tag:monitoring rabbitmq.read:*/*"
CALLBACK = "/js/oidc-oauth/login-callback.html"


@pytest.fixture(scope="module")
def provider() -> Iterator[LoginProvider]:
    provider = LoginProvider()
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def node(provider: LoginProvider) -> Iterator[LiveBroker]:
    tokens = {
        "issuer": provider.url,
        "resource_server_id": "rabbitmq",
        "resource_servers": {"portal": {"scope_prefix": "rabbitmq."}},
    }
    sign_on = {
        "oauth_enabled": True,
        "oauth_client_id": CLIENT_ID,
        "oauth_resource_servers": {
            "portal": {"label": "the portal", "oauth_initiated_logon_type": "idp_initiated"}
        },
    }
    environment = {
        "PENSTOCK_AUTH_BACKENDS": "oauth2,internal",
        "PENSTOCK_AUTH_OAUTH2": json.dumps(tokens),
        "PENSTOCK_MANAGEMENT_OAUTH": json.dumps(sign_on),
    }
    with LiveBroker(environment=environment) as running:
        yield running


@pytest.fixture
def visit(browser: Browser, node: LiveBroker, provider: LoginProvider) -> Iterator[Visit]:
    provider.claims = {"aud": "rabbitmq", "scope": SCOPE}
    provider.lives_s, provider.gives_refresh, provider.refuses = 600.0, True, ""
    provider.portal = node.http_url
    visit = Visit(browser, node.http_url)
    visit.page.goto(node.http_url)
    yield visit
    visit.close()


def sign_on(visit: Visit, label: str = "rabbitmq") -> None:
    visit.page.get_by_role("button", name=f"Log in with {label}").click()


def alert(visit: Visit, text: str) -> None:
    visit.page.get_by_role("alert").get_by_text(text).wait_for()


def stored(visit: Visit) -> str:
    both = "JSON.stringify([{...sessionStorage}, {...localStorage}])"
    return str(visit.page.evaluate(both))


def test_the_scopes_of_the_token_are_the_rights_of_the_session(
    visit: Visit, provider: LoginProvider
) -> None:
    page = visit.page
    assert page.get_by_label("Password").count() == 0
    visit.audit("light")
    page.evaluate("location.hash = '#/nodes'")
    sign_on(visit)
    visit.heading("Nodes")  # where the user wanted to go
    assert page.url.endswith("/#/nodes")
    page.get_by_text("ann", exact=True).wait_for()
    menu = page.get_by_role("navigation")
    assert menu.get_by_role("link", name="Users", exact=True).count() == 0, "no administrator"
    assert "eyJ" not in stored(visit), "no script keeps the access token"
    page.reload()
    visit.heading("Nodes")
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="Log in with rabbitmq").wait_for()
    assert provider.ended == {
        "id_token_hint": "an ID token",
        "client_id": CLIENT_ID,
        "post_logout_redirect_uri": f"{visit.url}/",
    }
    assert "penstock." not in stored(visit), "nothing is left of the session"
    found = page.evaluate(
        "fetch('/api/whoami', {headers: {'X-Requested-With': 'x'}}).then(({status}) => status)"
    )
    assert found == 401, "the session has ended at the broker"
    visit.faults.clear()  # of that request


def test_a_token_is_renewed_before_it_ends(visit: Visit, provider: LoginProvider) -> None:
    provider.lives_s = 5.0
    before = provider.refreshed
    sign_on(visit)
    visit.heading("Overview")
    assert provider.refreshed == before
    provider.lives_s = 40 * 86_400.0  # longer than a timer of a browser
    for _ in range(50):
        visit.page.wait_for_timeout(100)
        if provider.refreshed > before:
            break
    visit.page.wait_for_timeout(500)
    assert provider.refreshed == before + 1
    visit.menu("Queues")
    visit.heading("Queues")
    visit.check()


def test_an_expired_token_ends_the_session_and_the_form_says_so(
    visit: Visit, provider: LoginProvider
) -> None:
    provider.lives_s, provider.gives_refresh = 5.0, False
    sign_on(visit)
    visit.heading("Overview")
    alert(visit, "the token of your log-in has expired")


@pytest.mark.parametrize(
    "more, why",
    [
        ({"aud": "other"}, "the token is for another resource server, or for none (aud)"),
        ({"scope": "rabbitmq.read:*/*"}, "Not management user"),
    ],
)
def test_a_refused_token_is_refused_with_the_reason(
    visit: Visit, provider: LoginProvider, more: dict[str, str], why: str
) -> None:
    provider.claims |= more
    sign_on(visit)
    alert(visit, why)
    assert visit.page.url == f"{visit.url}/"


def test_what_the_provider_refuses_is_said(visit: Visit, provider: LoginProvider) -> None:
    provider.refuses = "access_denied"
    sign_on(visit)
    alert(visit, "The provider refused: the user may not")


def test_a_code_that_this_tab_has_not_asked_for_is_not_used(visit: Visit) -> None:
    visit.page.goto(f"{visit.url}{CALLBACK}?code=stolen&state=guessed")
    alert(visit, "That log-in was not begun in this tab: log in again.")
    visit.check()


def test_a_page_of_the_provider_sends_a_token(visit: Visit, provider: LoginProvider) -> None:
    provider.claims["aud"] = "portal"
    sign_on(visit, "the portal")
    visit.page.get_by_role("button", name="Open the broker").click()
    visit.heading("Overview")
    assert visit.page.url == f"{visit.url}/"
    visit.page.get_by_text("ann", exact=True).wait_for()
    visit.page.get_by_role("button", name="Log out").click()
    provider.claims["aud"] = "other"
    sign_on(visit, "the portal")
    visit.page.get_by_role("button", name="Open the broker").click()
    visit.page.get_by_text("the token is for another resource server").wait_for()
