"""A mail is read on a phone without scrolling to the side."""

import pytest
from playwright.sync_api import Browser, ViewportSize

from service_manager.mail.mail_html import to_html

pytestmark = pytest.mark.browser


def test_a_mail_fits_a_phone(chromium: Browser) -> None:
    path = "MOD13A2.061/1_km_16_days_NDVI/MOD13A2.061.1_km_16_days_NDVI.2020-01-01.tif"
    link = "https://swathmill.example/open?token=abc"
    text = f"Your request is complete.\n\n1 file to download:\n  {link}\n"
    page = chromium.new_page(viewport=ViewportSize(width=360, height=740))
    page.set_content(to_html(text, "picture@swathmill", path))
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    page.close()
    assert overflow <= 0
