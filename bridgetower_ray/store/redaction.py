"""Takes secrets out of text before it is shown or stored."""

import os
import re

CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
SECRET_NAME = re.compile(r"(TOKEN|PASSWORD|PASSWD|SECRET|API_KEY|ACCESS_KEY)", re.IGNORECASE)
SECRET_LENGTH = 6  # a shorter value would blot out ordinary words
HIDDEN = "***"


def redact(text: str) -> str:
    """`text` without credentials in URIs and without the values of environment variables that name a secret."""
    for name, value in os.environ.items():
        if SECRET_NAME.search(name) and len(value) >= SECRET_LENGTH:
            text = text.replace(value, HIDDEN)
    return CREDENTIALS.sub(f"{HIDDEN}@", text)
