# A KMS v2 plugin with grpcio, and with typical mistakes of authors: plugin.py SOCKET FAULT PROTO-DESCRIPTORS
import os
import signal
import sys
import time
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

socket, fault, descriptors = sys.argv[1:]
pool = descriptor_pool.DescriptorPool()
with open(descriptors, "rb") as file:
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(file.read()))
factory = message_factory.MessageFactory(pool)


def message(name):
    return factory.GetPrototype(pool.FindMessageTypeByName("v2." + name))


def status(request, context):
    answer = {"version": "v2", "healthz": "ok", "key_id": "key-1"}
    if fault == "throw":
        raise RuntimeError("vault: permission denied")
    if fault == "abort":
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "vault: permission denied")
    if fault in ("hang", "limit"):
        time.sleep(3600)
    if fault == "key_id":
        answer["keyId"] = answer.pop("key_id")
    if fault == "message":
        return message("EncryptResponse")(ciphertext=b"sealed", key_id="key-1")
    if fault == "slow":
        time.sleep(4)
    if fault == "large":
        answer["healthz"] = "x" * (5 << 20)
    return message("StatusResponse")(**answer)


def encrypt(request, context):
    return message("EncryptResponse")(ciphertext=b"sealed" + request.plaintext, key_id="key-1")


def decrypt(request, context):
    return message("DecryptResponse")(plaintext=request.ciphertext[len(b"sealed"):])


def method(name, handler):
    return grpc.unary_unary_rpc_method_handler(
        handler,
        request_deserializer=message(name + "Request").FromString,
        # The code that grpc_tools generates.
        response_serializer=message(name + "Response").SerializeToString,
    )


server = grpc.server(
    futures.ThreadPoolExecutor(max_workers=2),
    maximum_concurrent_rpcs=1 if fault == "limit" else None,
)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v2.KeyManagementService", {
    "Status": method("Status", status),
    "Encrypt": method("Encrypt", encrypt),
    "Decrypt": method("Decrypt", decrypt),
}),))
if os.path.exists(socket):
    os.unlink(socket)
if server.add_insecure_port("unix:" + socket) == 0:
    sys.exit("cannot listen")
server.start()
signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=1))
server.wait_for_termination()
