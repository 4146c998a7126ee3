"""Numbered steps of a store's schema, and which of them a database still lacks. Knows no dialect of SQL."""

from collections.abc import Sequence

from msgspec import Struct

from agentcore.errors import StoreError


class SchemaStep(Struct, frozen=True):
    """One step of a schema, applied once, in a transaction of its own.

    Attributes:
        number: of the schema that the step leads to; the first is 1, and none is left out.
        statements: what it executes, in order. A step that was released is never changed: a new one is added.
    """

    number: int
    statements: tuple[str, ...]


def newest(steps: Sequence[SchemaStep]) -> int:
    """The number of the schema that the steps lead to."""
    return steps[-1].number if steps else 0


def missing_steps(
    steps: Sequence[SchemaStep], applied: int, where: str, *, verify_only: bool = False
) -> Sequence[SchemaStep]:
    """The steps that a database still lacks, in order.

    Args:
        steps: all of them.
        applied: the number of the last step that the database has had; 0 if none.
        where: the database, for messages.
        verify_only: refuse to have any missing.

    Raises:
        StoreError: the database is newer than these steps, or older and is only to be verified.
    """
    if applied > newest(steps):
        raise StoreError(
            f"{where} has schema version {applied}, and this agentcore knows versions up to {newest(steps)}: a newer "
            "agentcore has upgraded it; upgrade this one as well, or use another database"
        )
    missing = steps[applied:]
    if missing and verify_only:
        has = f"schema version {applied}" if applied else "no schema of agentcore"
        raise StoreError(
            f"{where} has {has}, and version {newest(steps)} is needed, which verify_only=True forbids to make; open "
            "it once without verify_only, as a user who may change the schema"
        )
    return missing
