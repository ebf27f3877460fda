"""The error for a wrong option, setting or marker."""

import pytest

from cuptimem.printable import printable


def usage_error(text: str) -> pytest.UsageError:
    """To be raised: pytest writes its text as it is, and ends with exit code 4."""
    return pytest.UsageError(printable(text))
