#!/usr/bin/env bash
# @grpc/grpc-js 1.14.7, @grpc/proto-loader 0.8.1: two ways in which a KMS plugin on Node loses information, without an
# error or a log line in the server.
#
# 1. A handler throws an error with a code and details: the client gets UNKNOWN "Unknown error". If the same error is
#    passed to the callback, the client gets both. So a thrown "vault is sealed" reaches nobody.
# 2. With proto-loader's defaults, the proto's field key_id is called keyId. An answer with key_id is sent without that
#    field: the client gets an empty one.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >kms.proto <<'PROTO'
syntax = "proto3";
package v2;
service KeyManagementService { rpc Status(StatusRequest) returns (StatusResponse) {} }
message StatusRequest {}
message StatusResponse { string version = 1; string healthz = 2; string key_id = 3; }
PROTO
cat >main.js <<'JS'
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')
const service = grpc.loadPackageDefinition(loader.loadSync('kms.proto')).v2.KeyManagementService
const sealed = () => Object.assign(new Error(), { code: grpc.status.UNAVAILABLE, details: 'vault is sealed' })
const handlers = {
  'thrown': () => { throw sealed() },
  'given to the callback': (call, answer) => answer(sealed()),
  'key_id': (call, answer) => answer(null, { version: 'v2', healthz: 'ok', key_id: '1' }),
  'keyId': (call, answer) => answer(null, { version: 'v2', healthz: 'ok', keyId: '1' }),
}
const serve = (name) => new Promise((resolve, reject) => {
  const server = new grpc.Server()
  server.addService(service.service, { Status: handlers[name] })
  server.bindAsync(`unix://${process.cwd()}/kms.sock`, grpc.ServerCredentials.createInsecure(), (failed) => {
    if (failed) return reject(failed)
    const client = new service(`unix://${process.cwd()}/kms.sock`, grpc.credentials.createInsecure())
    client.Status({}, (error, got) => {
      console.log(error ? `${name}: ${grpc.status[error.code]} "${error.details}"` : `${name}: keyId is "${got.keyId ?? ''}"`)
      client.close()
      server.forceShutdown()
      resolve()
    })
  })
})
;(async () => { for (const name of Object.keys(handlers)) await serve(name) })()
JS
echo '{"private": true}' >package.json
npm install --ignore-scripts --no-audit --no-fund @grpc/grpc-js@1.14.7 @grpc/proto-loader@0.8.1 >/dev/null 2>&1
got=$(node main.js)
want='thrown: UNKNOWN "Unknown error"
given to the callback: UNAVAILABLE "vault is sealed"
key_id: keyId is ""
keyId: keyId is "1"'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
