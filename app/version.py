"""Versions of installed packages, by metadata alone: nothing is imported to know them."""


def package_version(name: str) -> str | None:
    """None where the package is not installed."""
    # Half the start of a short command, and only --version and doctor ask.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
