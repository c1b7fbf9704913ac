"""Marks the wheel as one for its platform: it carries the native library, built outside setuptools.

The library uses Python's stable ABI, so one wheel serves 3.11 and later. LLMD_WHEEL_PLATFORM names the platform if the
library is for another architecture or for an older glibc than this machine's (./build.sh wheel).
"""

import os

from setuptools import Distribution, setup


class NativeDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


wheel = {"py_limited_api": "cp311"}
if platform := os.environ.get("LLMD_WHEEL_PLATFORM"):
    wheel["plat_name"] = platform

setup(distclass=NativeDistribution, options={"bdist_wheel": wheel})
