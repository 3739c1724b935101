#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image: Python and what the grader needs.
set -euo pipefail
root="${AUTOGRADER_ROOT:-/autograder}"

export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y python3 python3-venv
python=python3
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python=python3.11
    apt-get install -y python3.11 python3.11-venv
fi
"$python" -m venv "$root/venv"
"$root/venv/bin/pip" install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu \
    --extra-index-url https://pypi.org/simple --editable "$root/source/course"
"$root/venv/bin/grade" --course "$root/source/course" doctor
