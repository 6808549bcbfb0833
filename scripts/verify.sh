#!/bin/sh
# Judges the code and changes nothing. Only mypy keeps a cache, .mypy_cache, which git ignores: the second run takes seconds.
# Runs every check even if one fails, and names the failed checks.
set -u

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONDONTWRITEBYTECODE=1
failed=""

check() {
    name=$1
    shift
    if "$@" >"$scratch/output" 2>&1; then
        echo "ok      $name"
    else
        cat "$scratch/output"
        echo "FAILED  $name"
        failed="$failed $name"
    fi
}

generated_code_is_fresh() {
    mkdir "$scratch/proto" && cp -R proto/quorum_rpc "$scratch/proto/" &&
        find "$scratch/proto" \( -name '*_pb2*' -o -name __pycache__ \) -prune -exec rm -rf {} + &&
        (cd "$scratch" && "$root/.venv-codegen/bin/python" -m grpc_tools.protoc -I proto \
            --python_out=proto --pyi_out=proto --grpc_python_out=proto proto/quorum_rpc/v1/*.proto) &&
        diff -r -q -x __pycache__ proto/quorum_rpc "$scratch/proto/quorum_rpc" &&
        return
    echo "run  make proto  and commit what it writes"
    return 1
}

the_proto_files() {
    BUF_CACHE_DIR="$scratch/buf" .venv-codegen/bin/buf lint &&
        BUF_CACHE_DIR="$scratch/buf" .venv-codegen/bin/buf breaking --against "$PROTO_BASELINE"
}

root=$PWD
sources=""
for room in $CODE; do
    [ -d "$room" ] && sources="$sources $room"
done

# The types take longer than all other checks together, and one core. So they are judged beside the others.
"$BIN/mypy" >"$scratch/types" 2>&1 &
types=$!

types_are_right() {
    wait "$types"
    code=$?
    cat "$scratch/types"
    return $code
}

check lint "$BIN/ruff" check --no-cache $sources
check format "$BIN/ruff" format --no-cache --check --output-format concise $sources
check imports "$BIN/lint-imports" --no-cache --no-logo
check prose "$BIN/python" scripts/prose.py --check
check "generated code" generated_code_is_fresh
check "proto files" the_proto_files
check types types_are_right

if [ -n "$failed" ]; then
    echo "not clean:$failed   (make fix mends lint and format)"
    exit 1
fi
