"""What the portal keeps for those who sign in."""

from portal.accounts.sign_in_mail import SignInDesk
from portal.serving import openid
from portal.serving.portal import Portal


class Accounts:
    """Who mails sign-in links, and the OpenID provider, if there is one.

    Raises WrongSettingError.
    """

    def __init__(self, portal: Portal) -> None:
        self.desk = SignInDesk(portal.runtime, portal.settings)
        self.provider = openid.provider(portal.settings)
