"""Whether a variable's value is a secret: the one answer, for all that shows, keeps or refuses values. Pure."""

import re

MASK = "***"
# a word of the name, or what words end in where they are written together (PGPASSWORD, APIKEY, HFTOKEN)
NAME = re.compile(
    r"PASSW(?:OR)?D|PASSPHRASE|SECRET|CREDENTIAL"
    r"|(?:TOKENS?|COOKIES?|(?<!_P)KEYS?)(?:_|$)"  # but not TOKENIZERS_PARALLELISM, nor NCCL's NCCL_IB_PKEY
    r"|(?:^|_)(?:AUTH|AUTHORIZATION|PRIVATE|PASS|PW|PWD|PAT|DSN)(?:_|$)|PASS$"
)
WORKING_FOLDER = ("PWD", "OLDPWD")
PLACE = re.compile(r"_(?:FILE|PATH|DIR|SOCK|SOCKET)$")  # where a secret is kept is none
COUNT = re.compile(r"[0-9]{1,7}|true|false", re.IGNORECASE | re.ASCII)
COUNTED = re.compile(r"(?:TOKENS?|KEYS?)(?:_|$)")  # MAX_TOKENS=4096, NUM_KEYS=2
VALUE = re.compile(r"://[^/\s]*:[^/\s]+@")  # a password inside a URL


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable's value is not for other eyes, by its name or as a password in a URL."""
    if VALUE.search(value):
        return True
    upper = name.upper()
    if upper in WORKING_FOLDER or PLACE.search(upper) or not NAME.search(upper):
        return False
    return not (COUNT.fullmatch(value) and COUNTED.search(upper))
