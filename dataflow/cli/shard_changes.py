"""What the options of `dataflow shard` say about rows: which columns, tokens, and splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.errors import OptionError

if TYPE_CHECKING:
    from dataflow.sharding import Step

__all__ = ["parse_columns", "parse_renames", "parse_shares", "row_steps", "tokens_step"]


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


def row_steps(
    columns: list[str] | None, text: str | None, tokens: Step | None, renames: list[tuple[str, str]]
) -> list[Step]:
    """The steps in the order that all options are meant for: names are those of the source, and renaming comes last.

    Args:
        columns: Columns to keep, None for all.
        text: The column that is read to make tokens.
        tokens: Makes tokens.
        renames: Old and new names.
    """
    from dataflow.sharding import Rename, Select

    steps: list[Step] = []
    if columns is not None:
        read = [text] if text is not None and text not in columns else []
        steps.append(Select((*columns, *read)))
    if tokens is not None:
        steps.append(tokens)
    if renames:
        steps.append(Rename(tuple(renames)))
    return steps
