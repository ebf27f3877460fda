"""What `python -m pytest` is, as a script: of a fork (tests/forkserver), which can run no module."""

import os
import sys
import warnings

import pytest

sys.warnoptions.clear()  # of the process that forks
warnings.resetwarnings()
for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):  # as Python begins
    warnings.simplefilter("ignore", category)
sys.path[:1] = [os.getcwd(), *filter(None, [os.environ.get("PLUGINS")])]
sys.exit(pytest.console_main())
