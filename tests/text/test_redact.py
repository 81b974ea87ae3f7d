import json
import shlex
import subprocess

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from text.made_costs import assert_linear

from rlrun.text import redact as module
from rlrun.text.redact import MARK, find_secrets, redact, redact_config, redact_words

UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
HEX40 = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("text,shown", [
    ("HF_TOKEN=abc python x.py", "HF_TOKEN=@ python x.py"),
    ("export OPENAI_KEY='a b'", "export OPENAI_KEY='@'"),
    ("env 'DB_PASSWORD=two words here' python", "env 'DB_PASSWORD=@' python"),
    ("'PASSWORD=it'\"'\"'s secret' next", "'PASSWORD=@' next"),
    ("HF_TOKEN=it\\'s\\ one next", "HF_TOKEN=@ next"),
    ("bash -c 'export HF_TOKEN=abc' --foo 'bar'", "bash -c 'export HF_TOKEN=@' --foo 'bar'"),
    ("A=1 B='HF_TOKEN=zz'", "A=1 B='HF_TOKEN=@'"),
    ("DB_PASSWORD=hunter2 is it\nA=1", "DB_PASSWORD=@\nA=1"),
    ("--api-key VALUE --wandb-api-key=VALUE x", "--api-key @ --wandb-api-key=@ x"),
    ("--api-key 'a b' z", "--api-key '@' z"),
    ("['--api-key', 'VALUE']", "['--api-key', '@']"),
    ("+trainer.api_key=abc", "+trainer.api_key=@"),
    ('api_key = "abc"', 'api_key = "@"'),
    ('{"api_key": "abc", "n": 3, "HF_TOKEN": null}', '{"api_key": "@", "n": 3, "HF_TOKEN": null}'),
    ("api_key: a1b2c3d4e5", "api_key: @"),
    ("HF_TOKEN=${HF_TOKEN:-realone}", "HF_TOKEN=@"),
    (': "${HF_TOKEN:=abc}"', ': "${HF_TOKEN:=@}"'),
    ("https://x/?token=abc&user=1", "https://x/?token=@&user=1"),
    ("https://bob:pw@host/x", "https://bob:@@host/x"),
    ("redis://:p@ss@host", "redis://:@@host"),
    ("curl -H 'Authorization: Bearer xyz123'", "curl -H 'Authorization: Bearer @'"),
    ("Authorization: Basic dXNlcjpw", "Authorization: Basic @"),
    ("key=%s commit %s" % (HEX40, HEX40), "key=@ commit %s" % HEX40),
    ("wandb login --relogin " + HEX40, "wandb login --relogin @"),
    ("API_KEYS=(a b) C=1", "API_KEYS=@ C=1"),
    ("HF_TOKEN+=tail", "HF_TOKEN+=@"),
    ("curl -d x https://hooks.slack.com/services/T0AB/B0CD/x1y2z3 -s", "curl -d x https://hooks.slack.com/services/@ -s"),
    ('{"url":"https://hooks.slack.com/triggers/T0/123/abc","n":1}', '{"url":"https://hooks.slack.com/triggers/@","n":1}'),
    ("hooks.slack-gov.com/workflows/T0/A0/1/x;ls", "hooks.slack-gov.com/workflows/@;ls"),
    ("https://discord.com/api/webhooks/11/aB_c-d?wait=true", "https://discord.com/api/webhooks/@?wait=true"),
    ("<https://ptb.discordapp.com/api/v10/webhooks/11/aBc>", "<https://ptb.discordapp.com/api/v10/webhooks/@>"),
    ("https://api.telegram.org/bot123:AAE-x_1/sendMessage?chat_id=7", "https://api.telegram.org/bot@/sendMessage?chat_id=7"),
    ("tell 110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw me", "tell @ me"),
    ("http://10.0.0.7:8081/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/getMe", "http://10.0.0.7:8081/bot@/getMe"),
    ("https://acme.webhook.office.com/webhookb2/%s@%s/IncomingWebhook/0a1b/%s x" % (UUID, UUID, UUID),
     "https://acme.webhook.office.com/webhookb2/@ x"),
    ("https://p.logic.azure.com:443/workflows/0a/triggers/manual/paths/invoke?sp=%2Ftriggers&sv=1.0&sig=Ab3_dEf-012345678",
     "https://p.logic.azure.com:443/workflows/0a/triggers/manual/paths/invoke?sp=%2Ftriggers&sv=1.0&sig=@"),
    ("'https://open.feishu.cn/open-apis/bot/v2/hook/%s'" % UUID, "'https://open.feishu.cn/open-apis/bot/v2/hook/@'"),
    ("https://open.larksuite.com/open-apis/bot/v2/hook/%s, or" % UUID, "https://open.larksuite.com/open-apis/bot/v2/hook/@, or"),
    ("https://oapi.dingtalk.com/robot/send?access_token=%s&timestamp=1" % HEX40,
     "https://oapi.dingtalk.com/robot/send?access_token=@&timestamp=1"),
    ("https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=%s&debug=1" % UUID,
     "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=@&debug=1"),
    ("https://chat.example.com/hooks/n4ojxr6u7fyp8kubdxsy4cnm1c", "https://chat.example.com/hooks/@"),
    ("curl -u bob:hunter2 https://x", "curl -u bob:@ https://x"),
    ("(/usr/bin/curl -sSubob:hunter2)", "(/usr/bin/curl -sSubob:@)"),
    ("x=$(curl x \\\n  --user 'bob:two words' --proxy-user=al:pw)", "x=$(curl x \\\n  --user 'bob:@' --proxy-user=al:@)"),
    ("['curl', '-u', 'bob:two words', 'x']", "['curl', '-u', 'bob:@', 'x']"),
    ('sh -c "curl -u \\"bob:a b\\" x"', 'sh -c "curl -u \\"bob:@\\" x"'),
])
def test_what_is_hidden(text, shown):
    assert redact(text) == shown.replace("@@", MARK + "@").replace("@", MARK) if "@@" not in shown \
        else redact(text) == shown.replace("@@", MARK + "\0").replace("\0", "@")


@pytest.mark.parametrize("secret", [
    "sk-proj-a1B2c3D4e5F6g7H8i9J0", "hf_" + "aB3" * 10, "ghp_" + "aB3" * 12, "github_pat_11AB_" + "aB3" * 12,
    "AKIAIOSFODNN7EXAMPLE", "xoxb-123456789012-abc", "glpat-abcDEF123456", "nvapi-abcDEF1234567890",
    "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM"])
def test_known_shapes_under_any_name(secret):
    assert redact("cannot log in with %s today" % secret) == "cannot log in with %s today" % MARK


@pytest.mark.parametrize("text", [
    "HF_TOKEN=", "HF_TOKEN=\nHOME=/x", "WANDB_API_KEY=CHANGEME", "HF_TOKEN=$HF_TOKEN", "HF_TOKEN=" + MARK, "HF_TOKEN=''",
    "${HF_TOKEN:-} ${HF_TOKEN}", "SSH_KEY=/home/u/.ssh/id", "PROMPT_KEY=question MAX_INPUT_TOKENS=4096", "commit " + HEX40,
    "WANDB_API_KEY is not set: wandb:key", "task-specific-learning-rate-2", "step:12 - actor/lr:1e-06 - perf/mfu:0.3",
    "http://127.0.0.1:8080/x ssh://git@host/r", "error: invalid api_key: must be set", "the bearer token is absent",
    "KeyError: key=actor/lr", "--max-tokens 512 --token-level x", "PATH=/usr/bin:/bin",
    "curl -u bob https://x:8080/y", 'curl -u "$USER:$PASS" https://x', "curl -su ${A}:${B} x", "curl -o out.u https://x:1/y",
    "curl -s x && docker run --user 1000:1000 x", "docker run -u root:root x", "https://hooks.slack.com/services/$SLACK_PATH",
    "https://api.telegram.org/bot$TOKEN/sendMessage", "https://github.com/a/b/blob/main/hooks/README.md",
    "https://x/?key=actor/lr&step=12", "/c/.git/hooks/prepare-commit-msg.sample2", "step 12:AA", "http://h:1/hook/"])
def test_what_stays_readable(text):
    assert redact(text) == text


def test_a_private_key_keeps_its_lines():
    text = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nafter"
    assert redact(text) == "-----BEGIN RSA PRIVATE KEY-----\n%s\n%s\n-----END RSA PRIVATE KEY-----\nafter" % (MARK, MARK)


def test_a_known_secret_is_hidden_however_it_is_written():
    secret = "p@ss w'or\"d!$1/é\\x"
    printf_q = subprocess.run(["bash", "-c", 'printf %q "$1"', "x", secret], stdout=subprocess.PIPE, check=True,
                              env={"LC_ALL": "C.UTF-8"}).stdout.decode("utf-8")
    for written in (secret, printf_q, shlex.quote(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        shown = redact("before %s after" % written, [secret])
        assert MARK in shown and "ss" not in shown and shown.startswith("before") and shown.endswith("after"), written


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=40),
       st.lists(st.text(st.characters(exclude_characters="<>"), min_size=8, max_size=20), min_size=1, max_size=4))
def test_no_given_secret_is_left(before, after, secrets):
    assume(not any(secret in MARK for secret in secrets))
    text = before + "\n".join(secrets) + after
    shown = redact(text, secrets)
    assert not any(secret in shown for secret in secrets)


@settings(deadline=None)
@given(st.text("HF_TOKEN=PASWRD'\"\\ \n-:$({})abc", max_size=60))
def test_the_line_structure_is_kept(text):
    assert redact(text).count("\n") == text.count("\n")
    assert redact_config(text).count("\n") == text.count("\n")


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="<>/$"), min_size=9, max_size=30))
def test_the_value_of_a_secret_name_is_never_left_in_a_quoted_command(value):
    assume(not module.is_plain_value("HF_TOKEN", value))
    for line in (shlex.quote("HF_TOKEN=" + value), "HF_TOKEN=" + shlex.quote(value), "--api-key " + shlex.quote("=" + value)):
        assert value not in redact("env %s python x.py" % line)


def test_find_secrets():
    assert find_secrets({
        "HF_TOKEN": "hf_x12345678", "WANDB_API_KEY": HEX40, "MAX_TOKENS": "4096000000", "DB_PASSWORD": "short",
        "API_KEY": "CHANGEME", "A_TOKEN": "1234567890", "B_TOKEN": MARK, "C_KEY": "/a/b/c/d/e/f", "D_SECRET": "disabled",
        "PROXY": "http://a:longpassword@h", "PLAIN": "not-a-secret-value"}) == (HEX40, "hf_x12345678", "longpassword")


def test_find_secrets_takes_a_pem_apart():
    found = find_secrets({"SSH_PRIVATE_KEY": "-----BEGIN PRIVATE KEY-----\nMIIEabcdefghijklmnop\n-----END PRIVATE KEY-----"})
    assert "MIIEabcdefghijklmnop" in found


def test_redact_words():
    assert redact_words(["env", "HF_TOKEN=a b", "--api-key", "v1", "-x", "python", "--token", "-y", "+a.api_key=v2"]) == (
        "env", "HF_TOKEN=" + MARK, "--api-key", MARK, "-x", "python", "--token", "-y", "+a.api_key=" + MARK)


def test_the_login_of_curl_is_a_word_of_its_own():
    assert redact_words(["x", "-u", "a:b", "/bin/curl", "-su", "bob:two words", "--user", "$A:$B", "-ubob:c", "--proxy-user=al:d",
                         "-U", "7:7", "-o", "a:b", "https://x:1/y"]) == (
        "x", "-u", "a:b", "/bin/curl", "-su", "bob:" + MARK, "--user", "$A:$B", "-ubob:" + MARK, "--proxy-user=al:" + MARK,
        "-U", "7:7", "-o", "a:b", "https://x:1/y")


def test_redact_config():
    text = 'A=1\nDB_PASSWORD="x\ny z"\n# export HF_TOKEN=abc # c\nNOTE="no\nsecret"\nWANDB_API_KEY=CHANGEME\nK=plainsecret\n'
    assert redact_config(text, ["plainsecret"]) == (
        'A=1\nDB_PASSWORD="%s\n"\n# export HF_TOKEN=%s # c\nNOTE="no\nsecret"\nWANDB_API_KEY=CHANGEME\nK=%s\n'
        % (MARK, MARK, MARK))


def test_arrays_of_secrets_in_a_config():
    text = 'TOKENS=( "aaa111" bbb222 )\nexport API_KEYS+=(x\n y)\nMAX_TOKENS=(1 2)\nTEMPLATE_MODULES=(a b)\n'
    assert redact_config(text) == "TOKENS=(%s)\nexport API_KEYS+=%s\nMAX_TOKENS=(1 2)\nTEMPLATE_MODULES=(a b)\n" % (MARK, MARK)


@pytest.mark.parametrize("piece", [
    "a=(", "a=", "a: ", "a:", "a=b=", "A=B;", "--a ", "-a", 'a="', "a='", "a=\\", 'a="\\', '"a":', "'a': '", "${a:-", "key = ",
    "a.b-", "://a:", "hf_", "eyJa", "key ", "login --a", "bearer ", "a  =  ", "'x\\", "--api-key=", "TOKEN=a", "'TOKEN=",
    '"PASSWORD=a\\',
    "PASSWORD=a ", "authorization: ", "-----BEGIN ", "a=$'", 'a=\\"', " ", "a", "hooks.slack.com/services/",
    "://a/hook/", "://a/hook/1", "/hook/a", "?key=", "&amp;sig=a", "1:AA", "bot1", "curl -u ", "curl -u 'a:", "-u a:",
    'curl-u"a:b', "-uu", "--user=", "curl -ua:b;"])
def test_no_line_makes_it_linger(piece):
    """A log may hold any line, and each is cleaned whole before it is shown."""
    assert_linear(lambda text: redact(text, ("correct-horse-99",)), lambda size: (piece * size)[:size])
