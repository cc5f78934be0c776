"""The keywords of ssh_config(5), OpenSSH 10, for telling a misspelt one from one that is newer than we are. Pure."""

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

KNOWN = frozenset(
    """
    addkeystoagent addressfamily batchmode bindaddress bindinterface canonicaldomains canonicalizefallbacklocal
    canonicalizehostname canonicalizemaxdots canonicalizepermittedcnames casignaturealgorithms certificatefile
    challengeresponseauthentication channeltimeout checkhostip cipher ciphers clearallforwardings compression
    compressionlevel connectionattempts connecttimeout controlmaster controlpath controlpersist dsaauthentication
    dynamicforward enableescapecommandline enablesshkeysign escapechar exitonforwardfailure fingerprinthash
    forkafterauthentication forwardagent forwardx11 forwardx11timeout forwardx11trusted gatewayports
    globalknownhostsfile gssapiauthentication gssapiclientidentity gssapidelegatecredentials
    gssapikexalgorithms gssapikeyexchange
    gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns hashknownhosts host hostbasedacceptedalgorithms
    hostbasedauthentication hostbasedkeytypes hostkeyalgorithms hostkeyalias hostname identitiesonly identityagent
    identityfile ignoreunknown include ipqos kbdinteractiveauthentication kbdinteractivedevices kexalgorithms
    knownhostscommand localcommand localforward loglevel logverbose macs match nohostauthenticationforlocalhost
    numberofpasswordprompts obscurekeystroketiming passwordauthentication permitlocalcommand permitremoteopen
    pkcs11provider port preferredauthentications protocol proxycommand proxyjump proxyusefdpass
    pubkeyacceptedalgorithms pubkeyacceptedkeytypes pubkeyauthentication refuseconnection rekeylimit remotecommand
    remoteforward requesttty requiredrsasize revokedhostkeys rhostsrsaauthentication rsaauthentication
    securitykeyprovider sendenv serveralivecountmax serveraliveinterval sessiontype setenv skeyauthentication
    smartcarddevice stdinnull streamlocalbindmask streamlocalbindunlink stricthostkeychecking syslogfacility tag
    tcpkeepalive tunnel tunneldevice updatehostkeys useprivilegedport user userknownhostsfile userroaming
    usekeychain verifyhostkeydns versionaddendum visualhostkey warnweakcrypto xauthlocation
    """.split()  # noqa: SIM905 - one a line, as a list, would be four screens
)
ALIKE = 0.7  # difflib's ratio: `prot`, `identityfiles`, `hostnmae` are alike; a keyword of a later release is not


def misspelt(keyword: str, ignored: Iterable[str]) -> str | None:
    """The keyword that was probably meant; None for one that is known, to be ignored, or like none.

    Args:
        keyword: in lower case.
        ignored: patterns of IgnoreUnknown.
    """
    if keyword in KNOWN or any(fnmatchcase(keyword, pattern.lower()) for pattern in ignored):
        return None
    near = difflib.get_close_matches(keyword, KNOWN, 1, ALIKE)
    return near[0] if near else None
