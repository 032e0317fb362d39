"""issuer.py - an issuer of tokens for tests, with a JWT library that is not ours. Prints its port, then serves:

    GET /keys        its key set, in the manner that was chosen
    POST /manner     {"manner": good | down | slow | huge | redirect | nonsense}
    POST /rotate     the next key; the old ones are gone from the set
    POST /mint       {"claims": {}, "header": {}, "alg": ...} -> a token
    GET /asked       how often each path was asked for
"""
import base64
import http.server
import json
import sys
import threading
import time

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

MAKE = {"RS256": lambda: rsa.generate_private_key(65537, 2048), "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate}
state = {"manner": "good", "generation": 0, "keys": {}, "asked": {}}
lock = threading.Lock()


def rotate():
    state["generation"] += 1
    state["keys"] = {alg: make() for alg, make in MAKE.items()}


def kid(alg):
    return f"{alg}-{state['generation']}"


def key_set():
    found = []
    for alg, key in state["keys"].items():
        jwk = jwt.get_algorithm_by_name(alg).to_jwk(key.public_key(), as_dict=True)
        found.append(dict(jwk, kid=kid(alg), use="sig", alg=alg))
    return {"keys": found}


def public_pem(alg):
    return state["keys"][alg].public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def mint(wish):
    alg = wish.get("alg", "RS256")
    head = {"kid": kid(alg), **wish.get("header", {})}
    claims = {"iss": "https://id.example", "aud": "cove", "sub": "ada", "exp": int(time.time()) + 300, **wish.get("claims", {})}
    claims = {k: v for k, v in claims.items() if v is not None}
    if wish.get("confuse"):  # the public key as the secret of a MAC; a good library refuses to do that, so by hand
        import hashlib, hmac
        part = lambda d: base64.urlsafe_b64encode(json.dumps(d).encode()).rstrip(b"=")
        text = part({"alg": "HS256", "typ": "JWT", **head}) + b"." + part(claims)
        mac = hmac.new(public_pem(alg), text, hashlib.sha256).digest()
        return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()
    if wish.get("none"):
        return jwt.encode(claims, None, algorithm="none", headers=head)
    return jwt.encode(claims, state["keys"][alg], algorithm=alg, headers=head)


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, status, body, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        with lock:
            state["asked"][self.path] = state["asked"].get(self.path, 0) + 1
            manner, keys, asked = state["manner"], json.dumps(key_set()).encode(), json.dumps(state["asked"]).encode()
        if self.path == "/asked":
            self.send(200, asked)
        elif self.path != "/keys":
            self.send(200, keys)  # where a redirect would lead
        elif manner == "down":
            self.send(503, b"")
        elif manner == "slow":
            time.sleep(30)
        elif manner == "huge":
            try:
                self.send(200, b" " * (8 << 20))
            except OSError:
                pass  # hung up on, as it should be
        elif manner == "redirect":
            self.send(302, b"", Location="/metadata")
        elif manner == "nonsense":
            self.send(200, b"<html>")
        else:
            self.send(200, keys)

    def do_POST(self):
        wish = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        with lock:
            if self.path == "/manner":
                state["manner"] = wish["manner"]
                self.send(200, b"")
            elif self.path == "/rotate":
                rotate()
                self.send(200, b"")
            else:
                self.send(200, mint(wish).encode())


rotate()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_port, flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()  # ends with the test
server.serve_forever()
