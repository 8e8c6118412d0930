"""verl's entry point (group verl.plugins). verl imports this module in each of its processes, calls nothing, and is
silent about what an import raises; so this says it."""

try:
    from .verl import register

    register()
except Exception as error:  # noqa: BLE001
    import sys

    print(
        f"treadle: verl's backend 'treadle' is not registered: {type(error).__name__}: {error}",
        file=sys.stderr,
        flush=True,
    )
