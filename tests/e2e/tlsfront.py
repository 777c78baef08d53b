"""TLS in front of a scripted pod: the router speaks TLS to the front, the front plain HTTP to the pod. An end of one side
becomes the same end of the other: FIN and close_notify, or a reset."""

import select
import socket
import ssl
import threading

from client import reset


class Front:
    def __init__(self, pod, files, truncate=False, slow=False):
        self.pod, self.truncate, self.slow = pod, truncate, slow
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.load_cert_chain(*files)
        self.context.set_alpn_protocols(["h2", "http/1.1"])
        self.context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        self.names, self.protocols, self.connections = [], [], 0
        self.errors = []  # handshakes that failed
        self.listener = socket.create_server((pod.host, 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.authority = "%s:%d" % (pod.host, self.port)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            secure = self.context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False)
        except (ssl.SSLError, OSError) as e:
            self.errors.append(e)
            sock.close()
            return
        self.protocols.append(secure.selected_alpn_protocol())
        plain = socket.create_connection((self.pod.host, self.pod.port))
        try:
            self._pump(secure, plain)
        finally:
            plain.close()
            secure.close()

    def _pump(self, secure, plain):
        while True:
            ready = [secure] if secure.pending() else select.select([secure, plain], [], [])[0]
            if secure in ready:
                try:
                    data = secure.recv(1024 if self.slow else 65536)
                except OSError:  # an end without close_notify is one, too
                    return
                if not data:
                    return
                plain.sendall(data)
            if plain in ready:
                try:
                    data = plain.recv(65536)
                except ConnectionResetError:
                    reset(secure)
                    return
                if data:
                    secure.sendall(data)
                    continue
                if not self.truncate:
                    secure.setblocking(False)
                    try:
                        secure.unwrap()
                    except (ssl.SSLError, OSError):
                        pass  # ours is sent; theirs does not come
                return

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
