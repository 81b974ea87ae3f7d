"""What is a secret by its looks, under whatever name it stands: keys of known forms, addresses that are a password, logins."""
import re
from typing import Match

from .secret_names import is_plain_value

MARK = "<redacted>"

_SHAPES = tuple((re.compile(pattern), replacement) for pattern, replacement in (
    # -----BEGIN RSA PRIVATE KEY-----
    (r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)([A-Za-z0-9+/=:,\\\s]*)", None),
    # sk-proj-Ab3…   hf_Ab3…   ghp_Ab3…   github_pat_11AB…   glpat-…   nvapi-…   wandb_v1_…   xoxb-1-2-…   r8_…
    (r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{16,}", MARK),
    (r"(?<![A-Za-z0-9])(?:hf_|r8_|gh[pousr]_|api_org_)[A-Za-z0-9]{16,}", MARK),
    (r"(?<![A-Za-z0-9])(?:github_pat_|wandb_v[0-9]_)[A-Za-z0-9_]{16,}", MARK),
    (r"(?<![A-Za-z0-9])(?:glpat-|nvapi-|xox[abeoprs]-)[A-Za-z0-9_-]{10,}", MARK),
    # AKIAIOSFODNN7EXAMPLE   AIzaSyA…   eyJhbGciOi….eyJzdWIi….SflKxw…
    (r"(?<![A-Za-z0-9])A(?:KIA|SIA|ROA)[A-Z0-9]{16}(?![A-Za-z0-9])", MARK),
    (r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}", MARK),
    (r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", MARK),
    # api_key: 0123456789abcdef0123456789abcdef01234567   wandb login 0123…
    (r"((?i:key|login(?: --\w+){0,4})[\"']?\s{0,3}[=: ]\s{0,3}[\"']?)[0-9a-f]{40}(?![0-9A-Za-z])", r"\1" + MARK),
    # Addresses that are passwords themselves: whoever knows one may write there.
    # hooks.slack.com/services/T…/B…/…   discord.com/api/webhooks/…/…   api.telegram.org/bot123:AAE…/sendMessage
    (r"(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/)[\w%/.@~=+:-]+", r"\1" + MARK),
    (r"(discord(?:app)?\.com/api/(?:v[0-9]{1,3}/)?webhooks/)[\w%/.@~=+:-]+", r"\1" + MARK),
    (r"(api\.telegram\.org/(?:file/)?bot)[\w%:-]+", r"\1" + MARK),
    (r"(?<![A-Za-z0-9:.])(bot)?[0-9]{6,12}:AA[A-Za-z0-9_-]{30,}", r"\1" + MARK),
    # https://open.feishu.cn/open-apis/bot/v2/hook/0f1e…   https://acme.webhook.office.com/webhookb2/0f1e…@…   …/hooks/k3y…
    (r"(://[^\s'\"<>]{1,120}?/(?:web-?)?hooks?(?:b2)?/)(?=[\w%/.@~=+:-]{0,60}?[0-9])[\w%/.@~=+:-]{16,}", r"\1" + MARK),
    # https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=0f1e…   https://…logic.azure.com/…/invoke?sv=1.0&sig=Ab3…
    (r"((?:[?&]|\\u0026)(?:amp;)?(?:key|sig)=)[\w%.~+-]{16,}", r"\1" + MARK),
    # https://user:pass@host/
    (r"(?<=://)([^\s/:@'\"]{0,200}:)(?!<redacted>@)[^\s/'\"]{1,500}@", r"\1" + MARK + "@"),
    # Authorization: Basic dXNlcjpwYXNz
    (r"(?i)(\bauthorization[\"']?\s{0,3}[=:]\s{0,3}[\"']?(?:basic|token)\s+)[^\s\"']+", r"\1" + MARK),
    (r"(?i)(\bbearer\s+)(?!<redacted>|(?:tokens?|auth\w*|credentials?|schemes?|is|was|not|and|or)\b)[^\s\"',;]{4,}",
     r"\1" + MARK),
))

# curl -u name:password   curl -sSuname:password   ['curl', '--user', 'name:two words']
LOGIN_OPTION = re.compile(r"-[A-Za-z#]{0,8}?[uU]|--(?:proxy-)?user=?")
_LOGIN = re.compile(
    r"""(?<![^\s"'\[(])(?:%s)(?:["'],?[ \t]+|[ \t]*)(?P<quote>\\?["'])?(?P<name>[^\s:"'\\]{0,100}):"""
    r"""(?P<value>(?(quote)(?:(?!(?P=quote))[^\n]){1,500}|[^\s"']{1,500}))""" % LOGIN_OPTION.pattern)
_CURL_CHARACTERS = 1000  # after its name


def hide_shapes(text: str) -> str:
    """The text with `<redacted>` for each of them; its lines stay as many."""
    for pattern, replacement in _SHAPES:
        text = pattern.sub(_hide_block if replacement is None else replacement, text)
    return _LOGIN.sub(_hide_login, text) if "curl" in text else text


def hide_password(login: str) -> str:
    """Of `name:password`, as curl takes it; what is an address, or two numbers as docker has them, stays."""
    name, colon, value = login.partition(":")
    if not colon or name.isdigit() or value.startswith("//") or is_plain_value("PASSWORD", value):
        return login
    return name + ":" + MARK


def _hide_login(found: Match[str]) -> str:
    text, start, value = found.string, found.start(), found.group("value")
    if text.rfind("curl", max(0, start - _CURL_CHARACTERS), start) < 0:
        return found.group()
    end = "" if found.group("quote") else value[len(value.rstrip(";)],")):]
    login = found.group("name") + ":" + value[:len(value) - len(end)]
    return found.group()[:-len(login + end)] + hide_password(login) + end


def _hide_block(found: Match[str]) -> str:
    return found.group(1) + re.sub(r"\S[^\n]*", MARK, found.group(2))
