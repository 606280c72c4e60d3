"""Compiles the quiet, hot rooms with mypyc; everything else is in pyproject.toml.

``PENSTOCK_NO_COMPILE=1`` builds the same program from the same files, interpreted.
Without a C compiler the build goes on and leaves the interpreted files in charge.
"""

import os
import sys

from setuptools import setup

HOT = [
    "src/penstock/core/message.py",
]


def extensions():
    if os.environ.get("PENSTOCK_NO_COMPILE") == "1":
        return []
    from mypyc.build import mypycify

    modules = mypycify(
        ["--config-file=mypy.ini", *HOT] if os.path.exists("mypy.ini") else HOT,
        opt_level="3",
        debug_level="1",
    )
    if os.environ.get("PENSTOCK_REQUIRE_COMPILED") != "1":
        for module in modules:
            module.optional = True
    return modules


setup(ext_modules=extensions())
