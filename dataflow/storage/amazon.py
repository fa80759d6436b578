"""Where S3 credentials, region and endpoint come from: the environment, then the usual files."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataflow.errors import OptionError

__all__ = ["AmazonSettings", "amazon_settings"]

_DEFAULT_REGION = "us-east-1"
_KEYS_FROM_ELSEWHERE = ("sso_session", "sso_start_url", "credential_process", "role_arn")


@dataclass(frozen=True, slots=True)
class AmazonSettings:
    """How to reach and sign for an S3 service.

    Without keys the client asks the machine: web identity token, container or instance role.
    """

    region: str
    endpoint: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def amazon_settings(environment: Mapping[str, str] | None = None) -> AmazonSettings:
    """Reads the settings anew; the environment wins over the files.

    Args:
        environment: Defaults to the environment of the process.

    Raises:
        OptionError: `AWS_PROFILE` names a profile that does not exist, or whose keys are kept elsewhere.
    """
    environment = os.environ if environment is None else environment
    profile = _profile(environment)
    access_key_id = environment.get("AWS_ACCESS_KEY_ID")
    if access_key_id:
        secret_access_key = environment.get("AWS_SECRET_ACCESS_KEY")
        session_token = environment.get("AWS_SESSION_TOKEN")
    else:
        access_key_id = profile.get("aws_access_key_id")
        secret_access_key = profile.get("aws_secret_access_key")
        session_token = profile.get("aws_session_token")
        elsewhere = [key for key in _KEYS_FROM_ELSEWHERE if key in profile]
        if not access_key_id and elsewhere:
            raise OptionError(
                f"the AWS profile keeps its keys elsewhere ({', '.join(elsewhere)}), which is not supported: "
                "put them into the environment with `aws configure export-credentials --format env`"
            )
    return AmazonSettings(
        region=environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or profile.get("region")
        or _DEFAULT_REGION,
        endpoint=environment.get("AWS_ENDPOINT_URL_S3")
        or environment.get("AWS_ENDPOINT_URL")
        or profile.get("endpoint_url")
        or None,
        access_key_id=access_key_id or None,
        secret_access_key=secret_access_key or None,
        session_token=session_token or None,
    )


def _profile(environment: Mapping[str, str]) -> dict[str, str]:
    name = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    home = Path(environment.get("HOME") or "~").expanduser()
    config = _read(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config")
    credentials = _read(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials")
    found = [
        file[section]
        for file, section in ((config, name if name == "default" else f"profile {name}"), (credentials, name))
        if file.has_section(section)
    ]
    if not found and name != "default":
        raise OptionError(
            f"AWS_PROFILE is {name!r}, but neither the credentials nor the config file has such a profile"
        )
    return {key: value for section in found for key, value in section.items()}


def _read(path: str | Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(default_section="", strict=False)
    try:
        parser.read(Path(path).expanduser(), encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        # The error of the parser quotes lines of the file, which may hold a secret.
        line = getattr(error, "lineno", None)
        raise OptionError(f"cannot parse {path}{f', line {line}' if line else ''}: it is no INI file") from None
    return parser
