"""Takes secrets out of text before it is shown or stored, and out of addresses among facts."""

import os
import re
from typing import Any
from urllib.parse import quote

ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<rest>\S+)")
AFTER_NETWORK_PART = re.compile(r"[/?#]")
HOST_AND_PORT = re.compile(r"([^:@]*|\[[\da-fA-F:.]*\])(:\d*)?")
# Where everything before the last @ is credentials: these addresses are read so by SQLAlchemy.
DATABASES = ("postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle", "mongodb", "redis")
SECRET_NAME = re.compile(r"(TOKEN|PASSWORD|PASSWD|SECRET|API_KEY|ACCESS_KEY)", re.IGNORECASE)
SECRET_OPTION = re.compile(
    r"(?<=[?&])([\w.-]*(?:token|password|passwd|pwd|secret|api_?key|access_?key|signature)[\w.-]*=)[^&\s#]+",
    re.IGNORECASE,
)
SECRET_LENGTH = 6  # a shorter value would blot out ordinary words
HIDDEN = "***"


def redact(text: str) -> str:
    """A log, a message: without credentials in addresses, and without the values of variables that name a secret."""
    text = without_credentials(text)
    for value in sorted(_secrets(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _secrets() -> set[str]:
    values = {value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= SECRET_LENGTH}
    return values | {quote(value, safe="") for value in values}


def without_credentials(text: str, mark: str = f"{HIDDEN}@") -> str:
    """A fact: without user names and passwords in its addresses, whatever characters they hold; all else as it is."""
    plain = ADDRESS.sub(lambda found: _plain(found["scheme"], found["rest"], mark), text)
    return SECRET_OPTION.sub(rf"\1{HIDDEN}", plain)


def _plain(scheme: str, rest: str, mark: str) -> str:
    end = _end_of_credentials(scheme, rest)
    return f"{scheme}://{rest}" if end < 0 else f"{scheme}://{mark}{rest[end + 1 :]}"


def _end_of_credentials(scheme: str, rest: str) -> int:
    """Where the @ after the credentials stands; -1 where there are none."""
    network = AFTER_NETWORK_PART.split(rest, maxsplit=1)[0]
    if scheme.lower().partition("+")[0] in DATABASES:
        return rest.rfind("@")
    if "@" in network:
        return network.rfind("@")
    # A password may hold a slash that nobody escaped; what stands before it then is no host and port.
    return -1 if HOST_AND_PORT.fullmatch(network) else rest.rfind("@")


def facts_without_credentials(value: Any) -> Any:
    """The same for every text in lists and mappings."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, dict):
        return {name: facts_without_credentials(one) for name, one in value.items()}
    return [facts_without_credentials(one) for one in value] if isinstance(value, list | tuple) else value
