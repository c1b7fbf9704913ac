"""Marks the wheel as one for this platform: it carries the native library, built outside setuptools.

The library speaks the stable ABI of Python, so one wheel serves 3.11 and later.
"""

from setuptools import Distribution, setup


class NativeDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(distclass=NativeDistribution, options={"bdist_wheel": {"py_limited_api": "cp311"}})
