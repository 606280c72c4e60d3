"""Builds the distribution: pyproject.toml says what it is, tools/native.py compiles the hot files.

``PENSTOCK_NO_COMPILE=1`` makes a wheel of the same program that runs interpreted, on any platform.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent / "tools"))

import native


class BuildNative(build_ext):
    """Has the library and its shims built and placed, in the wheel or beside the source."""

    def run(self) -> None:
        beside = self.inplace or self.editable_mode
        native.build_into(native.SOURCE if beside else Path(self.build_lib))

    def get_outputs(self) -> list[str]:
        return [str(Path(self.build_lib) / name) for name in native.output_names()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return []


compiled = os.environ.get("PENSTOCK_NO_COMPILE") != "1"
setup(
    cmdclass={"build_ext": BuildNative},
    ext_modules=[Extension(native.LIBRARY, [])] if compiled else [],
)
