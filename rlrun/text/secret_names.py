"""Which names hold a secret, and which values can't be one. Judged by words of the name, not by substrings."""
import re

# AWSAccessKey -> AWS Access Key; wandb.api_key, --api-key and API_KEY_2 -> their words
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_ALWAYS = frozenset((
    "PASSWORD PASSWORDS PASSWD PASSPHRASE SECRET SECRETS CREDENTIAL CREDENTIALS CREDS COOKIE COOKIES JWT WEBHOOK "
    "BEARER AUTHORIZATION APIKEY APIKEYS DSN").split())
_GLUED = ("PASSWORD", "PASSWD", "SSHPASS", "APIKEY", "SECRET", "SECRETKEY", "ACCESSKEY", "PRIVATEKEY", "AUTHTOKEN",
          "ACCESSTOKEN", "APITOKEN")
# The last word that makes the value a place, a switch or a size, not the secret: HF_TOKEN_PATH, SECRET_NAME, AUTH_TYPE
_DESCRIBES = frozenset((
    "PATH PATHS FILE FILES FILENAME DIR DIRS DIRECTORY FOLDER ROOT URL URI ENDPOINT HOST PORT ADDR NAME NAMES TYPE "
    "TYPES METHOD MODE ENABLED DISABLED REQUIRED EXPIRY EXPIRES EXPIRATION TTL TIMEOUT LENGTH LEN SIZE COUNT LIMIT "
    "SOCK SOCKET USER USERNAME PROVIDER SCHEME FORMAT PREFIX SCOPE SCOPES REGION CACHE STORE VERSION POLICY CMD "
    "COMMAND HELPER COLUMN COLUMNS FIELD").split())
_DEFINITE_PAIRS = frozenset((  # secret wherever they stand: API_KEY_BACKUP, AWS_ACCESS_KEY_ID
    ("API", "KEY"), ("API", "KEYS"), ("ACCESS", "KEY"), ("SECRET", "KEY"), ("PRIVATE", "KEY"), ("ACCOUNT", "KEY"),
    ("AUTH", "TOKEN"), ("ACCESS", "TOKEN"), ("REFRESH", "TOKEN"), ("API", "TOKEN"), ("API", "TOKENS"),
    ("AUTH", "TOKENS"), ("CONNECTION", "STRING"), ("PASS", "PHRASE")))
# Words of a tokenizer's or a loss's TOKEN: PAD_TOKEN_ID, PPO_MAX_TOKEN_LEN_PER_GPU, TOKEN_MEAN
_MODEL_TOKEN = frozenset((
    "PAD EOS BOS UNK SEP CLS MASK STOP START END SPECIAL NEW MAX MIN NUM PER MEAN SUM LEVEL LEN LENGTH COUNT IDS "
    "LIMIT BUDGET RATIO LOSS LOGPROB LOGPROBS THINK THINKING IMAGE VIDEO AUDIO VISION INPUT OUTPUT PROMPT "
    "COMPLETION RESPONSE TEXT FIRST LAST NEXT TYPE RATE THROUGHPUT TPS BATCH PACKING CHAT TOOL ADDED DECODE PREFILL "
    "KL ENTROPY REWARD STEP TOTAL AVG SPLIT ALLOC AGG IMPORTANCE CLIP TURN BOI EOI EOT SOT LATENCY").split())
# Words of a KEY that names a column, a table's entry or the public half: PROMPT_KEY, REWARD_FN_KEY, SSH_PUBLIC_KEY
_COLUMN_KEY = frozenset((
    "PROMPT PROMPTS RESPONSE RESPONSES REWARD REWARDS FN IMAGE IMAGES VIDEO VIDEOS AUDIO INPUT INPUTS OUTPUT "
    "OUTPUTS LABEL LABELS TARGET ANSWER ANSWERS QUESTION QUERY TEXT MESSAGE MESSAGES CHAT CONVERSATION TOOL TOOLS "
    "ID INDEX COLUMN FIELD DATASET DATA SAMPLE SCORE METRIC METRICS GT TRUTH SOLUTION TASK SORT GROUP SORTED "
    "PRIMARY FOREIGN PARTITION CACHE DICT MAP PUBLIC PUB NUM VALUE ATTENTION CONFIG LOG STATE MODEL SOURCE SHARD "
    "ROUTING COMPLETION CONTENT CONTEXT SYSTEM INSTRUCTION EXTRA INFO UID EVAL TRAIN VAL TEST BEST MONITOR BY").split())
_SWITCHES = frozenset("USE NO ENABLE DISABLE REQUIRE FILE GLOB WORK".split())
_PASS_OWNERS = frozenset((
    "DB DATABASE MYSQL PG POSTGRES REDIS MONGO RABBITMQ SMTP MAIL EMAIL IMAP FTP HTTP PROXY USER ADMIN ROOT LDAP "
    "VNC LOGIN SUDO REGISTRY DOCKER SVN RSYNC").split())

# changeme   CHANGE-ME   your-api-key-here   xxxxxxxx   <token>   ********
_PLACEHOLDER = re.compile(
    r"(?<![a-z])change[-_ ]?me(?![a-z])|\A(?:your[-_][\w-]+|[\w-]+[-_]here|x{3,}|\*+|\.{3,}|<[^<>]*>|\[[^\[\]]*\]"
    r"|todo|fixme|dummy|placeholder|empty|none|null|nil|true|false|yes|no|on|off|unset|undefined|redacted"
    r"|disabled|enabled|required|optional|default|auto)\Z",
    re.IGNORECASE)
# $HF_TOKEN   ${HF_TOKEN}   ${HF_TOKEN:-}   ${HF_TOKEN:?not set}
_REFERENCE = re.compile(r"(?:\$\w+|\$\{\w+(?::?[-+=]|:?\?[^{}]*)?\})+\Z")
# ~/.netrc   ../keys/a.json   /etc/keys/a
_PATH = re.compile(r"(?:~[\w.-]*|\.{1,2})?(?:/[\w.,@+:=%{}$-]+)+/?\Z")
# an AWS secret key, which may well begin with a slash
_BASE64_KEY = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9/+]{40}\Z")


def is_secret_name(name: str) -> bool:
    """Takes the name of a variable, an option or a config field; tells whether its value is to be hidden."""
    words = [word.upper() for word in _WORD.findall(name)]
    if not words or words in (["PWD"], ["OLDPWD"]):
        return False
    while len(words) > 1 and words[-1].isdecimal():
        words.pop()
    if words[-1] in ("URL", "URLS", "URI", "ENDPOINT") and words[-2:-1] in (["WEBHOOK"], ["WEBHOOKS"], ["HOOK"]):
        return True  # who knows the address may write there
    if words[-1] in _DESCRIBES:
        return False
    pairs = set(zip(words, words[1:]))
    if _ALWAYS.intersection(words) or _DEFINITE_PAIRS & pairs or any(word.endswith(_GLUED) for word in words):
        return True
    others = set(words[:-1])
    if words[-1] == "KEY" or words[-2:] == ["KEY", "ID"]:
        return name != "key" and not others & _COLUMN_KEY  # `key=` in lower case is any parameter
    if "TOKEN" in words:
        return words[-1] != "ID" and not _MODEL_TOKEN.intersection(words)
    if words[-1] in ("AUTH", "PAT", "PWD"):
        return name != "auth" and words != ["PAT"] and not others & _SWITCHES
    return words[-1] == "PASS" and bool(others & _PASS_OWNERS)


def is_plain_value(name: str, value: str) -> bool:
    """Whether the value of a secret name gives nothing away: empty, a switch, a placeholder, a reference, a path.

    A password may look like a path; a key or token does not, and a name may hold the path of the file with the secret.
    """
    if not value.strip() or _PLACEHOLDER.search(value) or _REFERENCE.match(value) or value in ("0", "1"):
        return True
    return not is_password_name(name) and is_path(value)


def is_path(value: str) -> bool:
    """Whether the value reads like the path of a file."""
    return bool(_PATH.match(value)) and not _BASE64_KEY.match(value)


def is_password_name(name: str) -> bool:
    """Whether a person chose the value: it may hold spaces and any sign."""
    return any(word in ("PASS", "PWD", "COOKIE", "STRING") or "PASSW" in word or "PASSPHRASE" in word
               for word in (word.upper() for word in _WORD.findall(name)))
