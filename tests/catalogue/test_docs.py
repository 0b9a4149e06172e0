from pathlib import Path

from rackgate.engines.catalogue import OWN_KIND, catalogue
from rackgate.engines.launchers import remote
from rackgate.engines.launchers.containers import settings as box_settings
from rackgate.engines.launchers.pods import launcher as kubernetes
from rackgate.engines.launchers.processes import launcher as process
from rackgate.known_failures.signatures import signatures

TEXT = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()


def test_every_key_of_every_launcher_is_in_the_docs():
    keys = {*box_settings.KEYS, *kubernetes.KEYS, *process.KEYS, *remote.KEYS} - {OWN_KIND}
    assert sorted(key for key in keys if f"`{key}`" not in TEXT) == []


def test_every_engine_and_general_failure_is_in_the_docs():
    assert [name for name in catalogue() if f"| `{name}` |" not in TEXT] == []
    ends_a_start = [known.name for known in signatures() if known.cause]
    assert [name for name in ends_a_start if f"`{name}`" not in TEXT] == []
