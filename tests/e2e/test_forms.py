"""Multipart forms, as audio and image APIs have them: the model's field wherever it stands, bytes untouched."""

import os

import pytest

from pod import ok
from test_errors import check_error

PATH = "/v1/audio/transcriptions"


def part(head, content):
    return b"--XYZ\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + content + b"\r\n"


def form(*parts):
    return b"".join(parts) + b"--XYZ--\r\n"


def sound(n):
    return part(b'name="file"; filename="a.wav"\r\nContent-Type: audio/wav', os.urandom(n).replace(b"--XYZ", b"------"))


def post(router, body, path=PATH, kind="multipart/form-data; boundary=XYZ", headers=()):
    c = router.client()
    c.request("POST", path, body=body, headers=[("Content-Type", kind)] + list(headers))
    r = c.answer()
    r.id = c.id
    return r


@pytest.mark.parametrize("size", [0, 100, 3_000_000])
def test_model_before_and_behind_the_file(start, size):
    pod = start.pod(lambda q: q.reply(body=b"\x00\x01sound", content_type="audio/mpeg"))
    router = start.router({"m": [pod]})
    model, file = part(b'name="model"', b"m"), sound(size)
    for body in (form(model, file), form(file, model)):
        r = post(router, body)
        assert r.status == 200 and r.body == b"\x00\x01sound"
        assert pod.requests[-1].body == body and pod.requests[-1].path == PATH
        assert router.access(r.id)["model_name"] == "m"
    assert router.metric("kthena_router_requests_total", model="m", path=PATH, status_code="200", model_route="m",
                         error_type="successful_request", backend_type="model_server", backend_name="m",
                         upstream_model="m") == 2


def test_model_is_renamed(start):
    pod = start.pod(ok)
    router = start.router(ini="[model-server s]\npods = %s\nmodel = openai/whisper\n[model-route r]\nmodel = m\ntarget = s\n"
                          % pod.authority)
    file = sound(1000)
    assert post(router, form(file, part(b'name="model"', b"m"))).status == 200
    assert pod.requests[0].body == form(file, part(b'name="model"', b"openai/whisper"))


def test_session_and_user(start):
    pod = start.pod(lambda q: q.reply(body={"usage": {"input_tokens": 3, "output_tokens": 4}}))
    router = start.router({"m": [pod]}, boost=False, enable_fairness_scheduling="true")
    r = post(router, form(part(b'name="model"', b"m"), part(b'name="user"', b"tom")), path="/v1/images/edits")
    assert router.access(r.id)["user"] == "tom" and router.access(r.id)["output_tokens"] == 4


@pytest.mark.parametrize("body, kind, words", [
    (form(sound(10)), "multipart/form-data; boundary=XYZ", 'must have a field'),
    (form(part(b'name="model"', b" ")), "multipart/form-data; boundary=XYZ", "blank"),
    (form(part(b'name="model"', b"m" * 1025)), "multipart/form-data; boundary=XYZ", "1024"),
    (form(part(b'name="model"', b"m")), "multipart/form-data", "no boundary"),
    (form(part(b'name="model"', b"m")), "multipart/form-data; boundary=ABC", "does not have its boundary"),
    (form(part(b'name="model"', b"m"))[:-9], "multipart/form-data; boundary=XYZ", "ends in the middle"),
])
def test_no_model(start, body, kind, words):
    pod = start.pod(ok)
    router = start.router({"m": [pod]})
    r = post(router, body, kind=kind)
    check_error(r, 400, "model_missing")
    assert words in r.json()["error"]["message"]
    assert pod.requests == []


def test_other_multipart_is_refused(start):
    router = start.router({"m": [start.pod(ok)]})
    check_error(post(router, b"x", kind="multipart/mixed; boundary=XYZ"), 400, "unsupported")


def test_unknown_model(start):
    router = start.router({"m": [start.pod(ok)]})
    check_error(post(router, form(part(b'name="model"', b"other"))), 404, "route_not_found")
