"""Models of the user's own, named as ``module:NAME``."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from arachne_opt.errors import InputError


def is_plugin(name: str) -> bool:
    """Whether a name means an object of a module of the user's."""
    return ":" in name


def load_plugin(name: str) -> Any:  # noqa: ANN401 - whatever the user made
    """The object ``NAME`` of a module; the current folder is searched, too.

    Raises:
        InputError: there is no such module or object, or importing it fails.
    """
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        hint = "module:NAME of a file in this folder or of an installed package"
        raise InputError(f"cannot import {module_name!r}: {error}", hint=hint) from error
    found = getattr(module, attribute, None)
    if found is None:
        raise InputError(f"the module {module_name!r} has no {attribute!r}")
    return found
