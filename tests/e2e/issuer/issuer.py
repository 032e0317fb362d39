"""issuer.py - an identity provider for tests, with a JWT library that is not ours. Prints its port,
then serves:

    GET /keys        its key set, in the chosen manner
    POST /manner     {"manner": good | down | slow | huge | redirect | nonsense}
    POST /rotate     creates the next key; the old ones are removed from the set
    POST /mint       {"claims": {}, "header": {}, "alg": ...} -> a token
    GET /asked       the number of requests for each path

and the device flow (RFC 8628, with PKCE): /.well-known/openid-configuration, /device, /token. POST
/device-manner chooses the failure: {"manner": good | deny | slow | expire | mixup | http | page |
nobearer}; POST /agree stands for the person that enters the code.
"""
import base64
import hashlib
import hmac
import http.server
import json
import secrets
import sys
import threading
import time
import urllib.parse

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

MAKE = {"RS256": lambda: rsa.generate_private_key(65537, 2048), "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "EdDSA": ed25519.Ed25519PrivateKey.generate}
state = {"device": "good", "codes": {}, "refresh": {}, "manner": "good", "generation": 0, "keys": {}, "asked": {}}
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
    if wish.get("confuse"):  # the public key as the secret of a MAC; a good library refuses that, so it is computed here
        part = lambda d: base64.urlsafe_b64encode(json.dumps(d).encode()).rstrip(b"=")
        text = part({"alg": "HS256", "typ": "JWT", **head}) + b"." + part(claims)
        mac = hmac.new(public_pem(alg), text, hashlib.sha256).digest()
        return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()
    if wish.get("none"):
        return jwt.encode(claims, None, algorithm="none", headers=head)
    return jwt.encode(claims, state["keys"][alg], algorithm=alg, headers=head)


def origin(handler):
    return f"http://127.0.0.1:{handler.server.server_port}"


def discovery(here):
    other = "http://id.example" if state["device"] == "http" else here
    return {"issuer": here + "/other" if state["device"] == "mixup" else here, "device_authorization_endpoint": here + "/device",
            "token_endpoint": other + "/token"}


def begin_device(here, form):
    if "code_challenge" not in form or form.get("code_challenge_method") != "S256":
        return 400, {"error": "invalid_request", "error_description": "PKCE is required"}
    code = secrets.token_urlsafe(16)
    state["codes"][code] = {"challenge": form["code_challenge"], "client": form["client_id"], "audience": form.get("audience"), "agreed": False, "asked": 0}
    page = "javascript:alert(1)" if state["device"] == "page" else here + "/enter"
    return 200, {"device_code": code, "user_code": "ABCD-\x1b[31mEFGH", "verification_uri": page, "interval": 1, "expires_in": 2 if state["device"] == "expire" else 300}


def give(here, client):
    refresh = secrets.token_urlsafe(16)
    state["refresh"][refresh] = client
    claims = {"iss": here, "aud": "cove", "roles": ["developer"], "exp": int(time.time()) + 300}
    return 200, {"access_token": mint({"claims": claims, "alg": "ES256"}), "token_type": "mac" if state["device"] == "nobearer" else "Bearer",
                 "expires_in": state.get("lifetime", 300), "refresh_token": refresh}


def token(here, form):
    if form.get("grant_type") == "refresh_token":
        client = state["refresh"].pop(form.get("refresh_token"), None)  # each works once
        return give(here, client) if client and client == form.get("client_id") else (400, {"error": "invalid_grant"})
    code = state["codes"].get(form.get("device_code"))
    if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:device_code" or not code or code["client"] != form.get("client_id"):
        return 400, {"error": "invalid_grant"}
    digest = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
    if digest != code["challenge"]:
        return 400, {"error": "invalid_grant", "error_description": "PKCE"}
    code["asked"] += 1
    if state["device"] == "deny":
        return 400, {"error": "access_denied"}
    if state["device"] == "slow" and code["asked"] == 1:
        return 400, {"error": "slow_down"}
    if not code["agreed"]:
        return 400, {"error": "authorization_pending"}
    del state["codes"][form["device_code"]]  # works once
    return give(here, code["client"])


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
        if self.path == "/.well-known/openid-configuration":
            self.send(200, json.dumps(discovery(origin(self))).encode())
        elif self.path == "/asked":
            self.send(200, asked)
        elif self.path != "/keys":
            self.send(200, keys)  # the target of the redirect
        elif manner == "down":
            self.send(503, b"")
        elif manner == "slow":
            time.sleep(30)
        elif manner == "huge":
            try:
                self.send(200, b" " * (8 << 20))
            except OSError:
                pass  # the client hung up, as it should
        elif manner == "redirect":
            self.send(302, b"", Location="/metadata")
        elif manner == "nonsense":
            self.send(200, b"<html>")
        else:
            self.send(200, keys)

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"
        if self.path in ("/device", "/token"):
            with lock:
                state["asked"][self.path] = state["asked"].get(self.path, 0) + 1
                form = dict(urllib.parse.parse_qsl(text.decode()))
                status, answer = (begin_device if self.path == "/device" else token)(origin(self), form)
            self.send(status, json.dumps(answer).encode())
            return
        wish = json.loads(text)
        with lock:
            if self.path == "/device-manner":
                state["device"], state["lifetime"] = wish["manner"], wish.get("lifetime", 300)
                state["codes"].clear()
                self.send(200, b"")
                return
            if self.path == "/agree":
                for code in state["codes"].values():
                    code["agreed"] = True
                self.send(200, json.dumps(len(state["codes"])).encode())
                return
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
