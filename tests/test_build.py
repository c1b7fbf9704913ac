"""The parts of build.sh that can be tested without a build."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = "awk bash cat cp cut dirname flock grep head ln mkdir mktemp mv rm sha256sum sleep tail tr".split()


def ran(expression: str, path: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Runs an expression in a shell that has sourced build.sh. Without a verb, build.sh only prints its usage."""
    program = f"set --; . {ROOT / 'build.sh'} >/dev/null; {expression}"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHON" and not name.startswith("LLMD_")}
    environment = {**inherited, "PATH": path, **settings}
    return subprocess.run(["/bin/bash", "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT)


def evaluated(expression: str, path: str) -> str:
    done = ran(expression, path)
    done.check_returncode()
    return done.stdout.strip()


def test_the_environment_is_not_made_from_itself() -> None:
    """The README says to put the environment's bin on the PATH, and some users do so twice."""
    own, system = str(ROOT / ".venv" / "bin"), os.environ["PATH"]
    assert not evaluated("find_python", f"{own}:{system}").startswith(own)
    for path in (
        f"{own}:/usr/bin:/bin", f"/usr/bin:{own}:/bin", f"/usr/bin:/bin:{own}", f"{own}:{own}:{own}:/usr/bin:/bin"
    ):  # fmt: skip
        assert evaluated('echo "$PATH"', path) == "/usr/bin:/bin"


@pytest.mark.parametrize("named", ["/no/python", "false"])
def test_a_python_that_is_named_is_used_or_refused(named: str) -> None:
    for verb in ("verb_prerequisites", "require_prerequisites"):
        done = ran(verb, os.environ["PATH"], PYTHON=named)
        said = f"[llmd] error: PYTHON={named} is no Python of 3.11 or later that can be started\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    own = str(ROOT / ".venv" / "bin" / "python")
    assert ran("find_python", os.environ["PATH"], PYTHON=own).stdout.strip() == own


@pytest.mark.parametrize("variable", ["CC", "CXX"])
def test_a_compiler_that_is_named_is_used_or_refused(variable: str) -> None:
    for verb in ("verb_prerequisites", "require_prerequisites"):
        done = ran(verb, os.environ["PATH"], **{variable: "/no/compiler"})
        said = f"[llmd] error: {variable}=/no/compiler is no program that can be started\n"
        assert (done.returncode, done.stderr) == (1, said)
    assert ran("verb_prerequisites", os.environ["PATH"], **{variable: "true"}).returncode == 0


def test_a_browser_that_is_not_there_is_to_be_installed(machine: Machine) -> None:
    done = machine.runs("verb_test_page")
    assert done.returncode == 1 and "install them with: apt-get install chromium chromium-driver\n" in done.stderr
    machine.has("bin/chromium")
    assert machine.runs("verb_test_page").stderr.endswith("apt-get install chromium-driver\n")


def test_a_compiler_that_is_not_there_is_to_be_installed(machine: Machine) -> None:
    done = machine.runs("verb_prerequisites")
    assert done.returncode == 0 and {"python3", "gcc", "libc6-dev", "g++"} < set(done.stdout.split())


# --- what a GPU's build needs ----------------------------------------------------------------------------------------


class Machine:
    """A machine that has only the programs that a test adds."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        self.bin.mkdir()
        for tool in TOOLS:
            found = next(path for folder in ("/usr/bin", "/bin") if (path := Path(folder, tool)).exists())
            (self.bin / tool).symlink_to(found)

    def has(self, path: str, text: str = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return file

    def has_compiler(self, *, cublas: bool) -> None:
        self.has("bin/nvcc", f"#!/bin/bash\nexit {int(not cublas)}\n")

    def has_driver(self) -> None:
        self.has("bin/nvidia-smi", "#!/bin/bash\nexit 0\n")

    def runs(self, expression: str, **settings: str) -> subprocess.CompletedProcess[str]:
        setting = {"LLMD_CACHE_DIR": str(self.root / "cache"), "VULKAN_SDK": "", **settings}
        begin = f"MACHINE={self.root} LOGS={self.root}/log; stage_ticker() {{ :; }}"  # its sleep would hold our pipe
        return ran(f"{begin}; {expression}", str(self.bin), **setting)

    def backend(self, **settings: str) -> str:
        """Returns the backend that would be built, or the line that says why none can be built."""
        done = self.runs("llama_backend native", **settings)
        assert (done.returncode == 0) == (done.stdout != ""), done
        return done.stdout.strip() or done.stderr.strip()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_gpu_the_cpu_is_built_for(machine: Machine) -> None:
    assert machine.backend() == "cpu"
    assert machine.runs("llama_backend native").stderr == ""


def test_an_unknown_backend_is_refused(machine: Machine) -> None:
    assert "LLMD_BACKEND=tpu: not one of cpu, cuda, hip, vulkan" in machine.backend(LLMD_BACKEND="tpu")


def test_cuda_without_driver_and_compiler(machine: Machine) -> None:
    said = machine.backend(LLMD_BACKEND="cuda")
    assert "here: no NVIDIA driver, no compiler (nvcc)." in said
    assert "apt-get install nvidia-cuda-toolkit" in said and "LLMD_CUDA_TOOLKIT=pypi" in said


def test_cuda_with_a_driver_alone(machine: Machine) -> None:
    machine.has_driver()
    assert "here: an NVIDIA driver, no compiler (nvcc)." in machine.backend(LLMD_BACKEND="cuda")
    done = machine.runs("llama_backend native")
    assert done.stdout.strip() == "cpu"
    assert "an NVIDIA GPU stays unused: an NVIDIA driver, no compiler (nvcc)" in done.stderr


def test_cuda_with_a_compiler_but_no_libraries(machine: Machine) -> None:
    machine.has_compiler(cublas=False)
    said = machine.backend(LLMD_BACKEND="cuda")
    assert f"here: no NVIDIA driver, a compiler ({machine.bin}/nvcc) without cuBLAS." in said


def test_cuda_without_a_driver_is_for_named_gpus(machine: Machine) -> None:
    machine.has_compiler(cublas=True)
    assert machine.backend() == "cpu"
    said = machine.backend(LLMD_BACKEND="cuda")
    assert f"here: no NVIDIA driver, a compiler with cuBLAS ({machine.bin}/nvcc)." in said
    assert "LLMD_CUDA_ARCHITECTURES=90" in said
    assert machine.backend(LLMD_BACKEND="cuda", LLMD_CUDA_ARCHITECTURES="90") == "cuda"
    flags = machine.runs("cuda_flags", LLMD_CUDA_ARCHITECTURES="90").stdout
    assert f"-DCMAKE_CUDA_COMPILER={machine.bin}/nvcc" in flags and "-DCMAKE_CUDA_ARCHITECTURES=90" in flags


def test_nvcc_has_the_host_compiler_that_it_knows(machine: Machine) -> None:
    machine.has_compiler(cublas=True)
    assert "CMAKE_CUDA_HOST_COMPILER" not in machine.runs("cuda_flags").stdout
    assert "-DCMAKE_CUDA_HOST_COMPILER=/my/g++" in machine.runs("cuda_flags", CXX="/my/g++").stdout


def test_another_gpu_is_another_build(machine: Machine) -> None:
    machine.has_compiler(cublas=True)
    for capability in ("9.0", "8.6"):
        machine.has("bin/nvidia-smi", f"#!/bin/bash\necho {capability}\n")
        assert capability in machine.runs("cuda_identity").stdout
        assert capability not in machine.runs("cuda_identity", LLMD_CUDA_ARCHITECTURES="90").stdout


def test_cuda_is_built_where_all_is_there(machine: Machine) -> None:
    machine.has_compiler(cublas=True)
    machine.has("dev/nvidia0")
    assert machine.backend() == "cuda" == machine.backend(LLMD_BACKEND="cuda")
    assert (
        "CMAKE_CUDA_ARCHITECTURES" not in machine.runs("cuda_flags").stdout
    )  # llama.cpp's default is the architecture of this machine


def test_a_toolkit_is_put_together_from_folders(machine: Machine) -> None:
    machine.has("compiler/bin/nvcc", "#!/bin/bash\nexit 0\n")
    machine.has("compiler/lib64/libcudart.so.13", "runtime")
    machine.has("libraries/include/cublas_v2.h")
    machine.has("libraries/lib/libcublas.so.13", "cublas")
    folders = f"{machine.root}/compiler:{machine.root}/libraries"
    done = machine.runs("cuda_toolkit_ensure && cuda_toolkit", LLMD_CUDA_TOOLKIT=folders)
    toolkit = Path(done.stdout.strip())
    assert toolkit.is_relative_to(machine.root / "cache"), done
    assert (toolkit / "lib64/libcudart.so").read_text() == "runtime"
    assert (toolkit / "lib/libcublas.so").read_text() == "cublas"
    assert (toolkit / "include/cublas_v2.h").exists()
    chosen = {"LLMD_CUDA_TOOLKIT": folders, "LLMD_BACKEND": "cuda", "LLMD_CUDA_ARCHITECTURES": "90"}
    assert machine.backend(**chosen) == "cuda"
    flags = machine.runs("cuda_flags", **chosen).stdout
    assert f"-DCMAKE_CUDA_COMPILER={toolkit}/bin/nvcc" in flags and f"-DCUDAToolkit_ROOT={toolkit}" in flags


def test_a_toolkit_from_nowhere_is_refused(machine: Machine) -> None:
    done = machine.runs("cuda_toolkit_ensure", LLMD_CUDA_TOOLKIT="/no/such/folder")
    assert done.returncode != 0 and "LLMD_CUDA_TOOLKIT: /no/such/folder is no folder" in done.stderr
    assert not list((machine.root / "cache").glob("llama/*.work.*"))


def test_vulkan_says_what_is_missing(machine: Machine) -> None:
    said = machine.backend(LLMD_BACKEND="vulkan")
    assert said.endswith("LLMD_BACKEND=vulkan needs packages that are not here; install them with: "
                         "apt-get install libvulkan-dev spirv-headers glslc")  # fmt: skip
    done = machine.runs("verb_test_vulkan")
    assert done.returncode != 0 and done.stderr.strip().endswith("spirv-headers glslc mesa-vulkan-drivers")
    machine.has("usr/include/vulkan/vulkan.h")
    machine.has("usr/share/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake")
    assert machine.backend(LLMD_BACKEND="vulkan").endswith("apt-get install glslc")
    machine.has("bin/glslc", "#!/bin/bash\n")
    assert machine.backend(LLMD_BACKEND="vulkan") == "vulkan"
    assert machine.runs("verb_test_vulkan").stderr.strip().endswith("apt-get install mesa-vulkan-drivers")


@pytest.mark.parametrize("name", ["lvp_icd.x86_64.json", "lvp_icd.json"])  # Debian 12, Debian 13
def test_lavapipe_is_found_by_its_description(machine: Machine, name: str) -> None:
    described = machine.has(f"usr/share/vulkan/icd.d/{name}")
    machine.has("usr/share/vulkan/icd.d/radeon_icd.x86_64.json")
    assert machine.runs("vulkan_lavapipe").stdout.strip() == str(described)


# --- llama.cpp -------------------------------------------------------------------------------------------------------

CHANGES = ROOT / "cmake" / "llama"


@pytest.mark.parametrize(
    "inside", ["", "./", "llama.cpp-b11549/", "xllamacpp-2026.10.11549/thirdparty/llama.cpp/", "a-1/vendor/llama.cpp/"]
)
def test_llama_is_found_in_any_archive(inside: str) -> None:
    names = [f"{inside}{name}" for name in ("CMakeLists.txt", "ggml/CMakeLists.txt", "src/llama.cpp", "src/llama.h")]
    others = [
        "CMakeLists.txt",
        "src/llama.cpp/include/x.h",
        f"{inside}old/src/llama.cpp",
        f"{inside}tools/CMakeLists.txt",
    ]
    done = ran(f"printf '%s\\n' {' '.join(others + names)} | llama_root", os.environ["PATH"])
    assert (done.returncode, done.stdout) == (0, f"{inside}\n")


def test_an_archive_without_llama_is_refused(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, {"ggml/CMakeLists.txt": "", "src/llama.h": ""})
    done = ran(f"verb_llama_next {archive}", os.environ["PATH"])
    assert done.returncode == 1 and f"no llama.cpp in {archive}" in done.stderr


def archive_of(folder: Path, files: dict[str, str], inside: str = "llama/") -> Path:
    archive = folder / "archive.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{inside}{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive


def next_of(folder: Path, source: str, patches: dict[str, str], inside: str) -> subprocess.CompletedProcess[str]:
    """Runs llama-next with these patches, on an archive whose src/llama.cpp has the text `source`."""
    changes = folder / "changes"
    changes.mkdir()
    (changes / "lavapipe").mkdir()
    (changes / "own.h").touch()
    for name, text in {**patches, "lavapipe/0001-last.patch": change_of("src/llama.cpp", "third", "3")}.items():
        (changes / name).write_text(text)
    version = "".join(f"set(LLAMA_VERSION_{part} {n})\n" for part, n in (("MAJOR", 1), ("MINOR", 2), ("PATCH", 3)))
    files = {"CMakeLists.txt": version, "LICENSE": "", "ggml/CMakeLists.txt": "", "src/llama.cpp": source}
    files |= {f"{part}/x": "" for part in ("include", "cmake", "common", "vendor", "licenses", "models/templates")}
    archive = archive_of(folder, files, inside)
    return ran(f"LLAMA_CHANGES={changes}; verb_llama_next {archive}", os.environ["PATH"])


def change_of(file: str, old: str, new: str) -> str:
    return f"--- a/{file}\n+++ b/{file}\n@@ -1,1 +1,1 @@\n-{old}\n+{new}\n"


@pytest.mark.parametrize("inside", ["", "./", "package-1/thirdparty/llama.cpp/"])
def test_it_is_told_which_patches_fit_another_llama(tmp_path: Path, inside: str) -> None:
    patches = {"0001-first.patch": change_of("src/llama.cpp", "first", "second")}
    patches["0002-second.patch"] = change_of("src/llama.cpp", "second", "third")  # applies after the first patch
    done = next_of(tmp_path, "first\n", patches, inside)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and lines == [
        ["llama.cpp", "1.2.3"],
        ["0001-first.patch", "applies"],
        ["0002-second.patch", "applies"],
        ["lavapipe/0001-last.patch", "applies"],
    ]


def test_it_is_told_what_of_a_patch_does_not_fit(tmp_path: Path) -> None:
    patches = {"0001-other.patch": change_of("src/llama.cpp", "other", "x") + change_of("src/gone.cpp", "a", "b")}
    patches["0002-fits.patch"] = change_of("src/llama.cpp", "first", "third")
    done = next_of(tmp_path, "first\n", patches, "llama/")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[1:] == [
        "0001-other.patch 2 of 2 hunks fail; no such file: src/gone.cpp",
        "0002-fits.patch applies",
        "lavapipe/0001-last.patch applies",
    ]
    assert done.returncode == 1 and done.stderr == "[llmd] error: 1 of our changes do not fit\n"


def test_every_change_of_llama_is_explained() -> None:
    """The README has a complete row for every patch, and no row for a file that does not exist."""
    page = (CHANGES / "README.md").read_text()
    there = {path.relative_to(CHANGES).as_posix() for path in CHANGES.rglob("*.*") if path.is_file()}
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    assert named == there - {"README.md"}
    patches = [row for row in rows if ".patch" in row[0]]
    assert all(len(row) == 5 and all(cell.strip() for cell in row) for row in patches)
    numbers = [path.name[:4] for path in sorted(CHANGES.glob("*.patch"))]
    assert all(number.isdigit() for number in numbers)
    assert len(set(numbers)) == len(numbers), "a number belongs to one patch for good"


# --- setting up once -------------------------------------------------------------------------------------------------

# The paths of a checkout below a folder of the test, with a library that is built; `locked` says that it would build.
SET_UP = """
mkdir -p {root} && cd {root}
mkdir -p .venv/bin package/_native package/data include libllm cmake requirements daemon/llmd/engine
touch package/data/one.gguf package/__init__.py requirements/{{build,runtime}}.txt CMakeLists.txt setup.cfg setup.py
touch pyproject.toml daemon/llmd/__init__.py daemon/llmd/engine/_native_build.py
ln -sf /bin/true {root}/.venv/bin/llmd
ROOT={root} BUILD={root}/build PYTHON_ENV={root}/.venv PACKAGE={root}/package
llama_plan() {{ LLAMA_DESCRIPTION="$1 of ${{LLMD_BACKEND:-cpu}}"; }}
locked() {{ echo "locked: $*"; }}
hash_of <{root}/requirements/runtime.txt >{root}/.venv/.stamp-runtime
package_identity >{root}/.venv/.stamp-package
native_identity >{root}/package/_native/.stamp
"""


@pytest.mark.parametrize(
    ("change", "builds"),
    [
        ("true", False),
        ("echo changed >$ROOT/libllm/one.c", True),
        ("echo changed >$ROOT/requirements/runtime.txt", True),
        ("echo changed >$ROOT/setup.cfg", True),
        ("LLMD_PORTABLE=1", True),
        ("LLMD_CPU_FEATURES=avx2", True),
        ("LLMD_BACKEND=vulkan", True),
        ("rm $PACKAGE/data/one.gguf", True),
        ("rm $PACKAGE/_native/.stamp", True),
    ],
)
def test_what_is_set_up_waits_for_no_other_build(tmp_path: Path, change: str, builds: bool) -> None:
    done = ran(f"{SET_UP.format(root=tmp_path)} {change}; verb_setup", os.environ["PATH"])
    assert (done.stdout, done.stderr) == ("locked: prepare_serve\n" if builds else "", "")


def test_a_build_for_fewer_instructions_has_a_place_of_its_own() -> None:
    asked = 'echo "$(native_name) $(native_folder) $(native_stamp) ${LLMD_LIBLLM_VARIANT:-}"'
    places = {
        features: ran(f"PACKAGE=/p; {asked}", os.environ["PATH"], LLMD_CPU_FEATURES=features).stdout.split()
        for features in ("", "avx2", "vnni")
    }
    assert places[""] == ["native", "native", "/p/_native/.stamp"]
    assert places["avx2"] == ["native-avx2", "native-avx2", "/p/_native/.stamp-avx2", "native-avx2"]
    assert places["vnni"] == ["native-vnni", "native-vnni", "/p/_native/.stamp-vnni", "native-vnni"]


def test_a_build_for_fewer_instructions_has_no_others() -> None:
    flags = {name: evaluated(f"llama_variant_flags {name}", os.environ["PATH"]).split() for name in (
        "native", "native-avx2", "native-avxvnni", "exact-avx2"
    )}  # fmt: skip
    assert "-DGGML_NATIVE=ON" in flags["native"] and "-DGGML_AVX2=ON" not in flags["native"]
    for name, vnni in (("native-avx2", False), ("native-avxvnni", True), ("exact-avx2", False)):
        assert {"-DGGML_NATIVE=OFF", "-DGGML_AVX2=ON"} <= set(flags[name]) and "-DGGML_AVX512=ON" not in flags[name]
        assert ("-DGGML_AVX_VNNI=ON" in flags[name]) == vnni


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"LLMD_CPU_FEATURES": "avx3"}, "LLMD_CPU_FEATURES=avx3: not one of avx2 avxvnni avx512 vnni"),
        ({"LLMD_CPU_FEATURES": "avx512 vnni"}, "LLMD_CPU_FEATURES=avx512 vnni: not one of avx2 avxvnni avx512 vnni"),
        (
            {"LLMD_CPU_FEATURES": "avx2", "LLMD_PORTABLE": "1"},
            "LLMD_CPU_FEATURES and LLMD_PORTABLE exclude each other: set one of them",
        ),
    ],
)
def test_instructions_that_no_build_is_for_are_refused(settings: dict[str, str], said: str) -> None:
    done = ran("main prerequisites", os.environ["PATH"], **settings)
    assert (done.returncode, done.stderr) == (1, f"[llmd] error: {said}\n")


def test_instructions_that_this_processor_lacks_are_refused() -> None:
    done = ran("llama_processor_has() { false; }; main prerequisites", os.environ["PATH"], LLMD_CPU_FEATURES="vnni")
    assert (done.returncode, done.stderr) == (
        1,
        "[llmd] error: LLMD_CPU_FEATURES=vnni: this processor cannot run such a build\n",
    )


def test_a_project_inside_of_llama_finds_the_ninja_of_the_environment(tmp_path: Path) -> None:
    cmake = tmp_path / "cmake"
    cmake.write_text('#!/bin/bash\necho "${PATH##*:}" "$@"\n')
    cmake.chmod(0o755)
    build = f"CMAKE={cmake} NINJA={tmp_path}/bin/ninja JOBS=2; llama_cmake_build folder --target a"
    assert evaluated(build, os.environ["PATH"]) == f"{tmp_path}/bin --build folder --parallel 2 --target a"


def test_the_programs_of_llama_are_built_without_the_lock_of_this_checkout() -> None:
    steps = "locked require_prerequisites setup_cmake peer_ensure".split()
    override = " ".join(f'{step}() {{ echo {step} "$@"; }};' for step in steps)
    done = ran(f"{override} PEER_PREFIX=/peer; verb_peer", os.environ["PATH"])
    assert done.stdout.splitlines() == ["locked setup_environment runtime", *steps[1:], "/peer/bin"]


# --- packages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["make_wheels", "make_debs"])
def test_a_wheel_is_for_a_known_architecture(verb: str, tmp_path: Path) -> None:
    override = f"BUILD={tmp_path}; setup_environment() {{ :; }}"
    done = ran(f"{override}; {verb} sparc", os.environ["PATH"])
    said = "[llmd] error: no wheel for sparc; there are: x86_64 aarch64\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_wheel_for_another_architecture_needs_its_compiler(machine: Machine) -> None:
    done = machine.runs("uname() { echo x86_64; }; wheel_toolchain aarch64")
    assert "a wheel for aarch64 needs a compiler: apt-get install g++-aarch64-linux-gnu" in done.stderr


def test_kernels_are_left_out_of_a_wheel_alone(tmp_path: Path) -> None:
    kernels = [
        "x64",
        "sse42 SSE42",
        "zen4 AVX512",
        "sapphirerapids AVX512 AMX_TILE",
        "armv8.2_1 DOTPROD",
        "armv8.2_2 FP16",
    ]
    kernels += ["armv9.2_1 SVE SME"]
    for variant, amx, left in (("portable", "broken", [0, 1, 2, 3, 4, 5]), ("wheel-x86_64", "absent", [0, 2, 5]),
                               ("wheel-x86_64", "works", [0, 2, 3, 5])):  # fmt: skip
        listed = tmp_path / "CMakeLists.txt"
        listed.write_text("".join(f"        ggml_add_cpu_backend_variant({kernel})\n" for kernel in kernels))
        ran(f"CC=false LLAMA_AMX={amx}; llama_leave_out {variant} {listed}", os.environ["PATH"]).check_returncode()
        assert re.findall(r"variant\((.*)\)", listed.read_text()) == [kernels[i] for i in left]
