"""What the options of `dataflow shard` say about rows: which columns, images, tokens, and splits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataflow.errors import OptionError

if TYPE_CHECKING:
    from dataflow.sharding import Step

__all__ = ["parse_columns", "parse_renames", "parse_shares", "row_steps", "tokens_step", "transcode_step"]

# As options call them, and as `Transcode` does.
_JPEG_PARAMETERS = {"q": "quality", "subsampling": "subsampling", "max_side": "max_side"}


def parse_columns(text: str | None) -> list[str] | None:
    """The names in `a,b`."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_renames(texts: list[str]) -> list[tuple[str, str]]:
    """The pairs in `old=new`.

    Raises:
        OptionError: One of them has another form.
    """
    pairs = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals:
            raise OptionError(f"--rename {text} is not of the form OLD=NEW")
        pairs.append((old, new))
    return pairs


def parse_shares(text: str) -> dict[str, str] | list[str]:
    """The shares in `0.9,0.1`, or in `train=0.9,val=0.1`.

    Raises:
        OptionError: Some have names and some have not, or a name comes twice.
    """
    items = [item.strip() for item in text.split(",")]
    named = [item.partition("=") for item in items if "=" in item]
    if not named:
        return items
    shares = {name.strip(): share.strip() for name, _, share in named}
    if len(shares) != len(items):
        raise OptionError(f"--split {text}: give every split a name of its own, as in train=0.9,val=0.1")
    return shares


def tokens_step(
    tokenizer: str, text: str, keep_text: bool, end: str | None, special_tokens: bool, drop_empty: bool
) -> Step:
    """The step that makes tokens.

    Raises:
        OptionError: There is no such tokenizer or token.
    """
    from dataflow.sharding import Tokenize, open_tokenizer

    found = open_tokenizer(tokenizer)
    return Tokenize(
        found,
        text,
        keep_text=keep_text,
        end=None if end is None else found.token_id(end),
        special_tokens=special_tokens,
        drop_empty=drop_empty,
    )


def transcode_step(text: str, columns: list[str] | None) -> Step:
    """The step that makes JPEGs, as in `jpeg` and `jpeg:q=90,subsampling=420,max_side=512`.

    Args:
        text: The format and how it is written.
        columns: The images, None for the one column that has the name of an image.

    Raises:
        OptionError: The text has another form, or a value makes no sense.
    """
    from dataflow.sharding import Transcode

    kind, colon, rest = text.partition(":")
    if kind != "jpeg":
        raise OptionError(f"--transcode {text}: {kind!r} is no format that is written, only jpeg is")
    given: dict[str, Any] = {}
    for item in rest.split(",") if colon else []:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in _JPEG_PARAMETERS:
            raise OptionError(
                f"--transcode {text}: {item.strip()!r} is none of q=1..100, subsampling=420|422|444 and max_side=PIXELS"
            )
        if not value.isascii() or not value.isdecimal():
            raise OptionError(f"--transcode {text}: {name} is {value!r}, it must be a whole number")
        if _JPEG_PARAMETERS[name] in given:
            raise OptionError(f"--transcode {text}: {name} comes twice")
        given[_JPEG_PARAMETERS[name]] = ":".join(value) if name == "subsampling" else int(value)
    try:
        return Transcode(**given, columns=None if columns is None else tuple(columns))
    except OptionError as error:
        raise OptionError(f"--transcode {text}: {error}") from error


def row_steps(
    columns: list[str] | None,
    transcode: Step | None,
    text: str | None,
    tokens: Step | None,
    renames: list[tuple[str, str]],
) -> list[Step]:
    """The steps in the order that all options are meant for: names are those of the source, and renaming comes last.

    Args:
        columns: Columns to keep, None for all.
        transcode: Makes JPEGs.
        text: The column that is read to make tokens.
        tokens: Makes tokens.
        renames: Old and new names.
    """
    from dataflow.sharding import Rename, Select

    steps: list[Step] = []
    if columns is not None:
        read = [text] if text is not None and text not in columns else []
        steps.append(Select((*columns, *read)))
    if transcode is not None:
        steps.append(transcode)
    if tokens is not None:
        steps.append(tokens)
    if renames:
        steps.append(Rename(tuple(renames)))
    return steps
