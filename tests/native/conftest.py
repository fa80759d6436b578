from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing on a machine that others use too.
settings.register_profile("no deadline", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("no deadline")
