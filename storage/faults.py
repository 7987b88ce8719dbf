"""Named points of a commit at which a test may kill, stop or fail the process.

Production code calls `Faults.reach` of an injected object that does nothing.  A test's subclass acts at the
point it was told, so that every instant of the commit that matters can be visited one after another instead
of being hit by luck.
"""

from __future__ import annotations

POINTS: tuple[str, ...] = (
    "commit.before_list",  # nothing has happened yet
    "commit.before_objects",  # no later round exists; the attempt has its name
    "commit.between_objects",  # some arrays of the attempt are written, others are not
    "commit.before_fsync",  # all arrays are written, perhaps in the page cache only
    "commit.before_manifest",  # all objects are durable and hashed, nothing names them
    "create.before_write",  # the object's temporary file is about to be made
    "create.before_fsync",  # the temporary file is written, not durable
    "create.before_link",  # it is durable under its temporary name
    "create.after_link",  # it has its name: from here on the round is committed
    "commit.after_manifest",  # the manifest is durable, not yet read back
    "commit.before_retention",  # the commit is complete, superseded rounds are still there
    "retention.before_delete",  # one superseded round is about to be deleted
    "commit.after_retention",  # all is done
)


class Faults:
    """Does nothing at any point; subclasses in tests do."""

    def reach(self, point: str) -> None:
        """Be told that the commit has come to ``point``, one of `POINTS`."""


NO_FAULTS = Faults()
