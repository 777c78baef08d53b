"""Certificates for tests, made with the openssl program."""

import os
import ssl
import subprocess


def _openssl(*args):
    subprocess.run(["openssl", *args], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Authority:
    """A certificate authority in a directory of its own."""

    def __init__(self, directory):
        self.directory = str(directory)
        os.makedirs(self.directory, exist_ok=True)
        self.file, self.key = self.path("ca.pem"), self.path("ca.key")
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.key,
                 "-out", self.file, "-days", "30", "-subj", "/CN=test authority",
                 "-addext", "keyUsage=critical,keyCertSign", "-addext", "basicConstraints=critical,CA:TRUE")

    def path(self, name):
        return os.path.join(self.directory, name)

    def issue(self, name, alt="IP:127.0.0.1,DNS:localhost", days=30):
        """A certificate with its key; returns both paths."""
        cert, key, request, extensions = (self.path(name + end) for end in (".pem", ".key", ".csr", ".ext"))
        with open(extensions, "w", encoding="ascii") as f:
            f.write("subjectAltName=%s\n" % alt)
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request,
                 "-subj", "/CN=" + name)
        _openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key, "-CAcreateserial", "-days", str(days),
                 "-extfile", extensions, "-out", cert)
        return cert, key

    def client(self, alpn=("http/1.1",), **options):
        """A client's context that trusts this authority alone."""
        c = ssl.create_default_context(cafile=self.file)
        c.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # an end without close_notify is an error
        if alpn:
            c.set_alpn_protocols(list(alpn))
        for name, value in options.items():
            setattr(c, name, value)
        return c


def encrypt_key(key, out):
    _openssl("ec", "-in", key, "-aes128", "-passout", "pass:secret", "-out", out)


def common_name(sock):
    return dict(pair for rdn in sock.getpeercert()["subject"] for pair in rdn)["commonName"]
