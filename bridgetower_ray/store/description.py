"""A sweep run's description as tags of its experiment: in the store itself, wherever artifacts lie. Knows no mlflow.

A tag holds 5,000 characters in a store of any version, so the text is packed and cut. The tag that names the parts is
written last: a reader sees the former description or the new one, never half of one.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping

from bridgetower_ray.store.redaction import facts_without_credentials
from bridgetower_ray.sweep.sweep_run import SweepRun

PREFIX = "bridgetower_ray.sweep_run."
TAG_LENGTH = 5000


def description_tags(sweep_run: SweepRun) -> dict[str, str]:
    """The tags that hold a description, the one to write last at the end."""
    plain = json.dumps(facts_without_credentials(sweep_run.model_dump(mode="json")))
    packed = base64.b85encode(zlib.compress(plain.encode(), 9)).decode()
    digest = hashlib.sha256(packed.encode()).hexdigest()[:12]
    parts = [packed[start : start + TAG_LENGTH] for start in range(0, len(packed), TAG_LENGTH)]
    head = f"{PREFIX}{sweep_run.id}"
    return {**{f"{head}.{digest}.{place}": part for place, part in enumerate(parts)}, head: f"{digest} {len(parts)}"}


def described_in(tags: Mapping[str, str], sweep_run: str) -> SweepRun | None:
    """The description of a sweep run in an experiment's tags; None where there is none that can be read."""
    head = f"{PREFIX}{sweep_run}"
    digest, _, count = tags.get(head, "").partition(" ")
    try:
        packed = "".join(tags[f"{head}.{digest}.{place}"] for place in range(int(count)))
        return SweepRun.model_validate_json(zlib.decompress(base64.b85decode(packed)))
    except (KeyError, ValueError, zlib.error):
        return None


def outdated_tags(tags: Mapping[str, str], sweep_run: str) -> list[str]:
    """The parts of descriptions that the sweep run had before."""
    head = f"{PREFIX}{sweep_run}"
    digest = tags.get(head, "").partition(" ")[0]
    return [name for name in tags if name.startswith(f"{head}.") and not name.startswith(f"{head}.{digest}.")]
