"""What options and ini settings ask for, checked before any test runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cuptimem.errors import Error
from cuptimem.pytest_plugin import baselines, comparison, outputs
from cuptimem.pytest_plugin.usage import usage_error


@dataclass(frozen=True)
class Settings:
    """What options and ini settings ask for."""

    every: bool = False
    traces: Path | None = None
    most: int = outputs.MOST
    table: bool = False
    save: str | None = None
    against: str | None = None
    rules: tuple[comparison.Rule, ...] = ()
    lenient: bool = False
    json: Path | None = None

    @property
    def any_output(self) -> bool:
        return self.table or bool(self.save or self.against or self.json)


def settings_of(config: pytest.Config, setting: Callable[[str], Any]) -> Settings:
    """Raises pytest.UsageError, one line, for an invalid one."""
    rules = setting("-compare-fail") or ()
    texts = [rules] if isinstance(rules, str) else rules
    save, against = setting("-save"), setting("-compare")
    traces, target = setting("-traces"), setting("-json")
    root = config.invocation_params.dir
    try:
        most = setting("-most")
        settings = Settings(
            every=True,
            traces=None if traces is None else root / traces,
            most=outputs.MOST if most is None else _rows(most),
            table=_flag("cuptimem_measure", setting("")),
            save=None if save is None else baselines.checked_name(save),
            against=None if against is None and not texts else baselines.checked_name(against or baselines.NAME),
            rules=comparison.parse_rules(texts),
            lenient=_flag("cuptimem_compare_lenient", setting("-compare-lenient")),
            json=None if target is None else root / target,
        )
        if settings.against is not None and not is_worker(config):
            baselines.load(config.rootpath, settings.against)
        if settings.save is not None and not is_worker(config):
            baselines.check(config.rootpath, settings.save)
        if settings.traces is not None:
            _make(settings.traces, "--cuptimem-traces")
        if settings.json is not None and settings.json.is_dir():
            raise ValueError(f"--cuptimem-json: {target} is a folder; name a file")
    except (ValueError, Error) as error:
        raise usage_error(str(error)) from None
    if not (settings.any_output or setting("-most") is not None or traces):
        return replace(settings, every=False)
    return settings


def _rows(text: str) -> int:
    if not re.fullmatch(r"0*[1-9]\d{0,8}", text):
        raise ValueError(f"--cuptimem-most is a number of rows, 1 or more, not {text!r}")
    return int(text)


def _flag(name: str, value: Any) -> bool:
    """Of an option without a value, or of its ini twin."""
    if isinstance(value, str) and value.lower() not in ("1", "yes", "true", "on"):
        raise ValueError(f"{name} is yes or no, not {value!r}")
    return value is not None


def _make(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{option}: {folder}: {error.strerror}") from None


def is_worker(config: pytest.Config) -> bool:
    """Of pytest-xdist: the controller has all records."""
    return hasattr(config, "workerinput")
