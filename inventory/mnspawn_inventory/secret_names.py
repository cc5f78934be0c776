"""Whether a variable's value is a secret; used by everything that shows, keeps or refuses values. Pure."""

import re

MASK = "***"
# a word of the name, or its end where words are joined (PGPASSWORD, APIKEY, HFTOKEN)
NAME = re.compile(
    r"PASSW(?:OR)?D|PASSPHRASE|SECRET|CREDENTIAL"
    r"|(?:TOKENS?|COOKIES?|(?<!_P)KEYS?)(?:_|$)"  # but not TOKENIZERS_PARALLELISM, nor NCCL's NCCL_IB_PKEY
    r"|(?:^|_)(?:AUTH|AUTHORIZATION|PRIVATE|PASS|PW|PWD|PAT|DSN)(?:_|$)|PASS$"
)
WORKING_FOLDER = ("PWD", "OLDPWD")
PLACE = re.compile(r"_(?:FILE|PATH|DIR|SOCK|SOCKET)$")  # names the place of a secret, not the secret
COUNT = re.compile(r"[0-9]{1,7}|true|false", re.IGNORECASE | re.ASCII)
COUNTED = re.compile(r"(?:TOKENS?|KEYS?)(?:_|$)")  # MAX_TOKENS=4096, NUM_KEYS=2
VALUE = re.compile(r"://[^/\s]*:[^/\s]+@")  # a password inside a URL


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable is a secret by its name, or because its value is a URL with a password."""
    if VALUE.search(value):
        return True
    upper = name.upper()
    if upper in WORKING_FOLDER or PLACE.search(upper) or not NAME.search(upper):
        return False
    return not (COUNT.fullmatch(value) and COUNTED.search(upper))
