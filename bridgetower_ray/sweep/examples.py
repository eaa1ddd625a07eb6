"""The example sweeps that come with the package: those of the checkout's `sweeps` folder."""

from importlib.resources import files

from bridgetower_ray.errors import UsageError

FOLDER = files("bridgetower_ray.sweep") / "example_files"


def example_names() -> list[str]:
    """Names of the examples, in order."""
    found = [file.name.removesuffix(".yaml") for file in FOLDER.iterdir() if file.name.endswith(".yaml")]
    return sorted(name for name in found if name != "runtime_env")


def example_text(name: str) -> str:
    """The sweep file of an example; `sweep.schema.json` and `runtime_env.yaml` go by their file names.

    Raises:
        UsageError: there is no such example.
    """
    if name in (other_files := ("sweep.schema.json", "runtime_env.yaml")):
        return (FOLDER / name).read_text(encoding="utf-8")
    if name not in example_names():
        raise UsageError(f"no example {name!r}; there are {', '.join((*example_names(), *other_files))}")
    return (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
