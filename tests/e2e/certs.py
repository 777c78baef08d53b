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

    def issue(self, name, alt="IP:127.0.0.1,DNS:localhost", days=30, kind="ec"):
        """A certificate with its key, "ec" or "rsa"; returns both paths."""
        cert, key, request, extensions = (self.path(name + end) for end in (".pem", ".key", ".csr", ".ext"))
        with open(extensions, "w", encoding="ascii") as f:
            f.write("subjectAltName=%s\n" % alt)
        new_key = {"ec": ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), "rsa": ("rsa:2048",)}[kind]
        _openssl("req", "-newkey", *new_key, "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=" + name)
        _openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key, "-CAcreateserial", "-days", str(days),
                 "-extfile", extensions, "-out", cert)
        return cert, key

    def issue_between(self, name, start, end):
        """As issue, valid from start to end (YYYYMMDDHHMMSSZ)."""
        cert, key = self.issue(name)
        config = self.path(name + ".cnf")
        with open(config, "w", encoding="ascii") as f:
            f.write("[ca]\ndefault_ca=x\n[x]\ndatabase=%s\nrand_serial=yes\nnew_certs_dir=%s\ndefault_md=sha256\npolicy=p\n"
                    "x509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=IP:127.0.0.1\n"
                    % (self.path(name + ".db"), self.directory))
        with open(self.path(name + ".db"), "w", encoding="ascii"):
            pass
        _openssl("ca", "-batch", "-notext", "-config", config, "-cert", self.file, "-keyfile", self.key, "-startdate", start,
                 "-enddate", end, "-in", self.path(name + ".csr"), "-out", cert)
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
