#!/bin/sh
# Builds examples/go into a directory: scripts/go_example.sh OUT. The program is OUT/create_topic.
# Needs Go 1.24 or newer, .venv-codegen (make proto-lint makes it), and Go modules from the network or from Go's cache.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1/bin"
cp "$root/examples/go/main.go" "$root/examples/go/go.mod" "$root/examples/go/go.sum" "$1"
cd "$1"
go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
"$root/.venv-codegen/bin/python" -m grpc_tools.protoc -I "$root/proto" \
    --plugin=bin/protoc-gen-go --plugin=bin/protoc-gen-go-grpc \
    --go_out=. --go-grpc_out=. --go_opt=module=metaquorum --go-grpc_opt=module=metaquorum \
    "$root"/proto/quorum_rpc/v1/*.proto
go build -o create_topic .
