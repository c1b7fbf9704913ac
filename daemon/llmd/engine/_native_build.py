"""Generates the C source of the extension module `_libllm` from the public headers of libllm.

Functions and types are declared only in these headers. cffi parses the preprocessed headers. The C compiler then checks
every size and type against the same headers. The native build runs:

    python _native_build.py --compiler gcc --include include --output _libllm.c
"""

import argparse
import subprocess
from pathlib import Path

import cffi

MODULE = "_libllm"
HEADERS = ("llm.h", "llm_wire.h", "llm_session_table.h")
GUARD = "LLM_CFFI"  # if this macro is defined, the headers omit #include and extern "C"


def declarations(compiler: str, include: Path) -> str:
    """Returns the preprocessed headers, which cffi can parse."""
    command = [compiler, "-E", "-P", "-x", "c", f"-D{GUARD}", f"-I{include}", "-"]
    source = "".join(f'#include "{header}"\n' for header in HEADERS)
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def write_source(compiler: str, include: Path, output: Path) -> None:
    ffi = cffi.FFI()
    ffi.cdef(declarations(compiler, include))
    ffi.set_source(MODULE, "".join(f'#include "{header}"\n' for header in HEADERS))
    ffi.emit_c_code(str(output))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", required=True, help="C compiler whose preprocessor reads the headers")
    parser.add_argument("--include", required=True, type=Path, help="directory of llm.h")
    parser.add_argument("--output", required=True, type=Path, help="C file to write")
    arguments = parser.parse_args()
    write_source(arguments.compiler, arguments.include, arguments.output)


if __name__ == "__main__":
    main()
