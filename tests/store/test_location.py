"""One store has one name, and no secret in it."""

import os
from pathlib import Path

import pytest

from bridgetower_ray.data.cache import cache_root, settle_cache_root
from bridgetower_ray.errors import UsageError
from bridgetower_ray.store.location import (
    absolute_uri,
    check_exists,
    check_outlives_job,
    default_uri,
    identity,
    store_key,
)
from bridgetower_ray.store.redaction import facts_without_credentials, redact, without_credentials


def test_spellings_of_a_sqlite_file_are_one_store(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    spellings = [
        "sqlite:///there/mlflow.db",
        f"sqlite:///{tmp_path}/there/mlflow.db",
        "sqlite:///there/../there/mlflow.db",
        "sqlite:///link/mlflow.db",
        "sqlite+pysqlite:///there/mlflow.db?timeout=5",
    ]
    assert len({store_key(absolute_uri(one, tmp_path)) for one in spellings}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://localhost:5000", "http://127.0.0.1:5000/"),
        ("http://Server:80/", "http://server"),
        ("https://user:secret@server/mlflow", "https://other:word@SERVER/mlflow/"),
        ("postgresql://u:p@db/mlflow", "postgresql+psycopg2://v:q@db:5432/mlflow"),
        ("postgres://db/mlflow", "postgresql://db/mlflow"),
    ],
)
def test_spellings_of_a_server_are_one_store(one: str, other: str, tmp_path: Path) -> None:
    assert identity(absolute_uri(one, tmp_path)) == identity(absolute_uri(other, tmp_path))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://server:5000", "http://server:5001"),
        ("http://server/a", "http://server/b"),
        ("postgresql://db/a", "postgresql://db/b"),
        ("sqlite:///a.db", "sqlite:///b.db"),
    ],
)
def test_other_stores_are_others(one: str, other: str, tmp_path: Path) -> None:
    assert identity(absolute_uri(one, tmp_path)) != identity(absolute_uri(other, tmp_path))


def test_an_empty_address_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert default_uri(tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"


def test_a_database_in_memory_is_refused(tmp_path: Path) -> None:
    for uri in ("sqlite://", "sqlite:///:memory:"):
        with pytest.raises(UsageError, match="keeps nothing"):
            absolute_uri(uri, tmp_path)


@pytest.mark.parametrize(
    "uri", ["sqlite:///mlflow.db", "./mlruns", "mlruns", "file:mlruns", "postgresql://db/mlflow", ""]
)
def test_no_spelling_of_a_throw_away_folder_is_taken_in_a_job(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "runtime_resources" / "working_dir"
    job.mkdir(parents=True)
    monkeypatch.chdir(job)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match="throw-away copy"):
        check_outlives_job(default_uri(job), Path("/elsewhere"))


def test_a_relative_cache_is_absolute_for_processes_in_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDGETOWER_RAY_CACHE", "cache")
    settle_cache_root()
    monkeypatch.chdir("/")
    assert os.environ["BRIDGETOWER_RAY_CACHE"] == str(tmp_path / "cache")
    assert cache_root() == tmp_path / "cache"


def test_a_database_that_is_none_of_mlflows_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    file.write_bytes(b"")
    with pytest.raises(UsageError, match="is no MLflow store"):
        check_exists(f"sqlite:///{file}")
    assert file.read_bytes() == b""


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("http://user:pass@host:5000/x", "http://***@host:5000/x"),
        ("postgresql://u:p/w@db:5432/mlflow", "postgresql://***@db:5432/mlflow"),
        ("postgresql://u:p@w:/@db/mlflow", "postgresql://***@db/mlflow"),
        ("mysql+pymysql://u:p#?w@db/mlflow", "mysql+pymysql://***@db/mlflow"),
        ("https://u:p/w@host/x", "https://***@host/x"),
        ("https://token@host/x", "https://***@host/x"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("http://host:5000/runs?of=a@b", "http://host:5000/runs?of=a@b"),
        ("http://[::1]:5000/a@b", "http://[::1]:5000/a@b"),
        ("https://host/x?password=abc&y=1", "https://host/x?password=***&y=1"),
        ("no address, but an@sign", "no address, but an@sign"),
    ],
)
def test_credentials_are_taken_out_whole_and_nothing_else_is(address: str, plain: str) -> None:
    assert without_credentials(address) == plain
    assert without_credentials(f"at {address} now") == f"at {plain} now"


def test_a_password_that_is_a_common_word_masks_no_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTGRES_PASSWORD", "mlflow")
    facts = {"stack": {"mlflow": "3.17.2"}, "path": "http://u:mlflow@host/x", "list": ["mlflow"]}
    plain = {"stack": {"mlflow": "3.17.2"}, "path": "http://***@host/x", "list": ["mlflow"]}
    assert facts_without_credentials(facts) == plain
    assert redact("password mlflow") == "password ***"


def test_a_secret_that_holds_another_is_masked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv("B_TOKEN", "secret/longer one")
    assert redact("it is secret/longer one") == "it is ***"
    assert redact("it is secret%2Flonger%20one") == "it is ***"
