"""What results elsewhere add to the page of a request."""

from tests.portal.scripted import LivePortal


def test_the_page_of_a_request_offers_copies_and_scripts(portal: LivePortal, mapped: str) -> None:
    with portal.browser() as client:
        page = client.get(f"/requests/{mapped}").text
    assert f'data-copy-results="/api/requests/{mapped}/copies"' in page
    assert "Part of it, scripts, citation" in page
    assert f"/api/requests/{mapped}/scripts/CITATION.txt" in page
