"""Whether a text is an ssh_config. Every line has to fit, since any two words look like a keyword and its value."""

import fnmatch
from collections.abc import Iterator

from mnspawn_inventory.errors import InventoryError
from mnspawn_inventory.formats.ssh_config import KEYWORD, words_of
from mnspawn_inventory.text import Text, Word

# readconf.c up to OpenSSH 10, with what it once had, and what Debian, Red Hat, macOS and HPN-SSH add
KEYWORDS = frozenset(
    """
    addkeystoagent addressfamily afstokenpassing batchmode bindaddress bindinterface canonicaldomains
    canonicalizefallbacklocal canonicalizehostname canonicalizemaxdots canonicalizepermittedcnames
    casignaturealgorithms certificatefile challengeresponseauthentication channeltimeout checkhostip cipher ciphers
    clearallforwardings compression compressionlevel connectionattempts connecttimeout controlmaster controlpath
    controlpersist dsaauthentication dynamicforward enableescapecommandline enablesshkeysign escapechar
    exitonforwardfailure fallbacktorsh fingerprinthash forkafterauthentication forwardagent forwardx11
    forwardx11timeout forwardx11trusted gatewayports globalknownhostsfile globalknownhostsfile2 gssapiauthentication
    gssapiclientidentity gssapidelegatecredentials gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey
    gssapiserveridentity gssapitrustdns hashknownhosts host hostbasedacceptedalgorithms hostbasedauthentication
    hostbasedkeytypes hostkeyalgorithms hostkeyalias hostname hpnbuffersize hpndisabled identitiesonly identityagent
    identityfile identityfile2 ignoreunknown include ipqos kbdinteractiveauthentication kbdinteractivedevices
    keepalive kerberosauthentication kerberostgtpassing kexalgorithms knownhostscommand localcommand localforward
    loglevel logverbose macs match noneenabled nonemacenabled noneswitch nohostauthenticationforlocalhost
    numberofpasswordprompts obscurekeystroketiming passwordauthentication permitlocalcommand permitremoteopen
    pkcs11provider port preferredauthentications protocol protocolkeepalives proxycommand proxyjump proxyusefdpass
    pubkeyacceptedalgorithms pubkeyacceptedkeytypes pubkeyauthentication refuseconnection rekeylimit remotecommand
    remoteforward requesttty requiredrsasize revokedhostkeys rhostsauthentication rhostsrsaauthentication
    rsaauthentication rsaminsize securitykeyprovider sendenv serveralivecountmax serveraliveinterval sessiontype setenv
    setuptimeout skeyauthentication smartcarddevice stdinnull streamlocalbindmask streamlocalbindunlink
    stricthostkeychecking syslogfacility tag tcpkeepalive tcprcvbuf tcprcvbufpoll tisauthentication tunnel tunneldevice
    updatehostkeys useblacklistedkeys usekeychain useprivilegedport user userknownhostsfile userknownhostsfile2
    useroaming usersh verifyhostkeydns versionaddendum visualhostkey warnweakcrypto xauthlocation
    """.split()  # noqa: SIM905 - one a line would be a page
)
BARE = ("host", "match", "ignoreunknown")  # keywords that set nothing for a host
CHARM = "a nodelist of Charm++ is not read: write a line such as 'n01 slots=8' for each host"
EXPECTED = "a keyword of ssh_config with its value"


def check(text: Text, *, is_named: bool) -> None:
    """Check that the text can be read as an ssh_config.

    Args:
        is_named: the file's name says that it is one; otherwise at least one host needs a setting.

    Raises:
        InventoryError: a line does not fit; with its place.
    """
    ignored: list[str] = []
    first: Word | None = None
    says_something = False
    for words in _lines(text):
        keyword = words[0].text.lower()
        if keyword == "ignoreunknown":
            ignored += [pattern for word in words[1:] for pattern in word.text.lower().split(",")]
        if keyword not in KEYWORDS and not any(fnmatch.fnmatchcase(keyword, pattern) for pattern in ignored):
            raise _misfit(words[0], text)
        odd = next((word for word in words[1:] if word.text.startswith(("+", "-"))), None)
        if keyword == "host" and odd is not None:
            raise InventoryError(
                "not a name of a host", place=odd.place, found=odd.text, expected="names and patterns", hint=_hint(text)
            )
        first = first or (words[0] if keyword == "host" else None)
        says_something = says_something or keyword not in BARE
    if not is_named and not says_something and first is not None:
        raise InventoryError(
            "an ssh_config whose hosts have no settings",
            place=first.place,
            found=_line(first, text),
            expected="lines such as HostName or User below it, or a file with one host name a line",
        )


def _lines(text: Text) -> Iterator[list[Word]]:
    """The words of each line that has some."""
    for line in text.lines():
        if line.text.strip() and not line.text.lstrip().startswith("#") and not KEYWORD.match(line.text):
            start = len(line.text) - len(line.text.lstrip())
            raise _misfit(Word(line.text.strip(), line.place(start)), text)
        if words := words_of(line):
            yield words


def _misfit(word: Word, text: Text) -> InventoryError:
    return InventoryError(
        "not a line of an ssh_config", place=word.place, found=_line(word, text), expected=EXPECTED, hint=_hint(text)
    )


def _line(word: Word, text: Text) -> str:
    return text.content.split("\n")[word.place.line - 1].strip()


def _hint(text: Text) -> str | None:
    return CHARM if "++" in text.content or text.content.lstrip().startswith("group ") else None
