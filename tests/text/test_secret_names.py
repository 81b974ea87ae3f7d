import pytest

from rlrun.text import secret_names

SECRET = """
    WANDB_API_KEY HF_TOKEN HUGGING_FACE_HUB_TOKEN GITHUB_TOKEN AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY OPENAI_KEY
    OPENAI_API_KEY API_KEY_2 OPENAI_API_KEY_BACKUP DB_PASSWORD DB_PASS PGPASSWORD SSHPASS GOOGLE_CREDENTIALS
    GOOGLE_APPLICATION_CREDENTIALS COOKIE apiKey wandb.api_key --wandb-api-key GH_PAT TOKEN KEY AUTH SECRET JWT REDIS_AUTH
    RAY_AUTH_TOKEN SLACK_WEBHOOK_URL NGC_APIKEY AZURE_STORAGE_CONNECTION_STRING SIGNING_KEY ID_TOKEN DISCORD_WEBHOOK_URI
    webhook.urls FEISHU_HOOK_URL
""".split()
PLAIN = """
    TOKENIZERS_PARALLELISM MAX_INPUT_TOKENS PROMPT_KEY RAY_PORT RAY_ADDRESS SSH_AUTH_SOCK KEYMAP K8S_KUBECONFIG KUBECONFIG
    PAD_TOKEN_ID PPO_MAX_TOKEN_LEN_PER_GPU REWARD_FN_KEY data.reward_fn_key NUM_KEY_VALUE_HEADS PWD OLDPWD PASS_RATE PATH
    MONKEY GIT_AUTHOR_NAME HF_TOKEN_PATH USE_AUTH KEYBOARD IMAGE_KEY TOKEN_MEAN LOSS_AGG_MODE XDG_SESSION_ID key auth
    SECRET_NAME token_id RAY_AUTH_MODE GEN_TP XAUTHORITY SSH_PUBLIC_KEY _
""".split() + ["", "123"]


@pytest.mark.parametrize("name", SECRET)
def test_secret_names(name):
    assert secret_names.is_secret_name(name)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_names(name):
    assert not secret_names.is_secret_name(name)


@pytest.mark.parametrize("value", [
    "", "  ", "true", "False", "null", "CHANGEME", "change-me-please", "your-api-key", "put-your-key-here", "xxxx", "<token>",
    "<redacted>", "********", "$HF_TOKEN", "${HF_TOKEN}", "${HF_TOKEN:-}", "${HF_TOKEN:?not set}", "/home/u/.netrc",
    "~/.ssh/id_rsa", "../keys/a.json"])
def test_values_that_give_nothing_away(value):
    assert secret_names.is_plain_value("HF_TOKEN", value)


@pytest.mark.parametrize("name,value", [
    ("HF_TOKEN", "abc"), ("HF_TOKEN", "${HF_TOKEN:-abc}"), ("DB_PASSWORD", "/looks/like/a/path"), ("DB_PASSWORD", "12345678"),
    ("DB_PASSWORD", "two words here"), ("AWS_SECRET_ACCESS_KEY", "/Jalr3UtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")])
def test_values_that_do(name, value):
    assert not secret_names.is_plain_value(name, value)
