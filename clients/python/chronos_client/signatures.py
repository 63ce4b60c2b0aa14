"""Signatures of callbacks: the Standard Webhooks specification 1.0.0 (docs/security.md)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Sequence, Tuple

#: Signatures in a header that are looked at: two secrets sign at most.
_SIGNATURES_MAX = 16


class Unsigned(Exception):
    """A callback that nobody who knows a secret has signed, or that is too old or too new."""


def key_of(secret: str) -> bytes:
    """The key of a secret: ``whsec_`` and the base64 of 24 to 64 bytes."""
    text = secret.strip()
    try:
        key = base64.b64decode(text[len("whsec_"):], validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise ValueError("expected `whsec_` and the base64 of 24 to 64 bytes, got another secret")
    return key


def sign(key: bytes, id: str, timestamp: str, body: bytes) -> str:
    """The signature of a callback, as one word of the header."""
    mac = hmac.new(key, f"{id}.{timestamp}.".encode("ascii") + body, hashlib.sha256)
    return "v1," + base64.b64encode(mac.digest()).decode("ascii")


def verify(
    keys: Sequence[bytes],
    signed: Tuple[str, str, str],
    body: bytes,
    now_s: float,
    skew_s: float,
) -> None:
    """Raises ``Unsigned`` unless one of the keys has signed. ``signed``: id, time, signatures."""
    id, timestamp, signatures = signed
    if not id or not timestamp or not signatures:
        raise Unsigned("webhook-id, webhook-timestamp, webhook-signature: expected all three")
    if not (timestamp.isascii() and timestamp.isdigit()) or len(timestamp) > 12:
        raise Unsigned("webhook-timestamp: expected seconds since 1970")
    # A dot would let two messages be signed alike.
    if not id.isascii() or "." in id:
        raise Unsigned("webhook-id: expected ASCII without dots")
    if abs(now_s - int(timestamp)) > skew_s:
        raise Unsigned("webhook-timestamp: expected the present, within the allowed difference")
    # Every pair is compared, so that the time tells nothing of which secret fits.
    is_signed = False
    words = [word.encode("utf-8") for word in signatures.split(" ")[:_SIGNATURES_MAX]]
    for key in keys:
        good = sign(key, id, timestamp, body).encode("ascii")
        for word in words:
            is_signed |= hmac.compare_digest(good, word)
    if not is_signed:
        raise Unsigned("webhook-signature: expected that of a secret known here, got another one")
