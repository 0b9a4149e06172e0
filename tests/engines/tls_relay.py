"""Put TLS with client certificates before the Docker daemon's socket, on a loopback port.

usage: tls_relay.py PORT CERTIFICATES
"""

import socket
import ssl
import sys
import threading
from contextlib import suppress
from pathlib import Path


def pump(source, sink):
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def serve(raw, context):
    try:
        outer = context.wrap_socket(raw, server_side=True)
    except OSError:
        raw.close()
        return
    inner = socket.socket(socket.AF_UNIX)
    inner.connect("/var/run/docker.sock")
    back = threading.Thread(target=pump, args=(inner, outer), daemon=True)
    back.start()
    pump(outer, inner)
    back.join()
    outer.close()
    inner.close()


def main():
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            raw, _ = listener.accept()
            threading.Thread(target=serve, args=(raw, context), daemon=True).start()


if __name__ == "__main__":
    main()
