"""Files that other projects' own writers have written, and what their own readers give."""

from __future__ import annotations

import os

import pytest

# Before `datasets` is imported: it asks for nothing but files of this machine.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"

pytest.register_assert_rewrite("tests.ways.every_way")
