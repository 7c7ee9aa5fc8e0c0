# Makes the environment that scripts/hotslot and scripts/test run in: .venv at the top of the checkout.
# Sourced, never run. `ensure_environment EXTRA` is idempotent, safe beside a second copy of itself, and quiet when
# there is nothing to do; all it prints goes to stderr.

REPO=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$REPO/.venv
TORCH_CPU_RELEASE=2.13.0
TRITON_RELEASE=3.6.0 # the oldest that the kernels run on, so that the tests know of it

die() {
    printf 'hotslot: %s\n' "$*" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in python3.13 python3.12 python3.11 python3; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "needs Python 3.11, 3.12 or 3.13 on PATH; install one and run this again"
}

has_nvidia_gpu() {
    command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU
}

pip_install() {
    "$VENV/bin/python" -m pip install -qq --disable-pip-version-check "$@" >&2 ||
        die "installing $* failed; check the network (or pip's settings) and run this again"
}

# Succeeds if pip would install this torch without NVIDIA's gigabytes. Looks at metadata only.
pip_offers_cpu_torch() {
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --report - "$1" \
        2>/dev/null | "$VENV/bin/python" -c '
import json, sys
names = [item["metadata"]["name"].lower() for item in json.load(sys.stdin)["install"]]
sys.exit(any(name.startswith(("nvidia", "cuda", "triton")) for name in names))' 2>/dev/null
}

install_torch() {
    if "$VENV/bin/python" -c 'import importlib.metadata as m; m.version("torch")' 2>/dev/null; then
        return
    fi
    if has_nvidia_gpu; then
        pip_install 'torch>=2.11'
    elif pip_offers_cpu_torch "torch==$TORCH_CPU_RELEASE"; then
        pip_install "torch==$TORCH_CPU_RELEASE"
    else
        # pip's index has the CUDA build only; uv knows where PyTorch keeps its CPU builds.
        pip_install uv
        "$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" --torch-backend cpu \
            "torch==$TORCH_CPU_RELEASE" >&2 || die "no CPU build of torch could be installed; install torch>=2.11 into $VENV and run this again"
    fi
}

# ensure_environment documents | dev
ensure_environment() {
    local extra=$1 wanted stamp=$VENV/.hotslot-$1
    wanted=$(cksum <"$REPO/pyproject.toml")
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return
    fi
    mkdir -p "$VENV"
    exec 9>"$VENV/.lock"
    if command -v flock >/dev/null 2>&1; then
        flock 9
    fi
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
        printf 'hotslot: preparing %s (once, a few minutes)\n' "$VENV" >&2
        if [ ! -x "$VENV/bin/python" ]; then
            "$(find_python)" -m venv "$VENV" >&2 ||
                die "could not make $VENV; on Debian and Ubuntu, install python3-venv and run this again"
        fi
        install_torch
        if [ "$extra" = dev ] && ! has_nvidia_gpu; then
            pip_install "triton==$TRITON_RELEASE"
        fi
        pip_install --editable "$REPO${extra:+[$extra]}"
        printf '%s\n' "$wanted" >"$stamp"
    fi
    exec 9>&-
}
