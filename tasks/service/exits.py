"""How the processes of the service end when they cannot start (sysexits.h)."""

import os

CONFIGURATION = os.EX_CONFIG
"""The settings are wrong: a restart would not help, so none is made."""

UNAVAILABLE = os.EX_UNAVAILABLE
"""Something that the process needs does not answer: a restart may help."""
