// A KMS v2 plugin with @grpc/grpc-js, and with typical mistakes of authors: plugin.js SOCKET FAULT PROTO
'use strict';
const fs = require('fs');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [socket, fault, proto] = process.argv.slice(2);
const service = grpc.loadPackageDefinition(loader.loadSync(proto)).v2.KeyManagementService.service;
const sealed = Buffer.from('sealed');

function status(call, callback) {
  const answer = { version: 'v2', healthz: 'ok', keyId: 'key-1' };
  switch (fault) {
    case 'throw':
      throw new Error('vault: permission denied');
    case 'abort':
      return callback({ code: grpc.status.PERMISSION_DENIED, details: 'vault: permission denied' });
    case 'hang': // a synchronous call blocks the whole process
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
      break;
    case 'limit': // the KMS never answers
      return;
    case 'key_id': // the field's name in the .proto file
      return callback(null, { version: 'v2', healthz: 'ok', key_id: 'key-1' });
    case 'message':
      return callback(null, { ciphertext: sealed, keyId: 'key-1' });
    case 'slow':
      return setTimeout(callback, 4000, null, answer);
    case 'large':
      answer.healthz = 'x'.repeat(5 << 20);
  }
  callback(null, answer);
}

const server = new grpc.Server(fault === 'limit' ? { 'grpc.max_concurrent_streams': 1 } : {});
server.addService(service, {
  status,
  encrypt: (call, callback) =>
    callback(null, { ciphertext: Buffer.concat([sealed, call.request.plaintext]), keyId: 'key-1' }),
  decrypt: (call, callback) => callback(null, { plaintext: call.request.ciphertext.subarray(sealed.length) }),
});
fs.rmSync(socket, { force: true });
server.bindAsync('unix:' + socket, grpc.ServerCredentials.createInsecure(), (err) => {
  if (err) {
    console.error(err.message);
    process.exit(1);
  }
});
process.on('SIGTERM', () => server.tryShutdown(() => process.exit()));
