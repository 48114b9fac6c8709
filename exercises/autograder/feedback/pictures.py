"""Pictures from strangers: decoded, made small, and encoded anew, so that nothing but pixels is left of them."""

import base64
import io

from PIL import Image

__all__ = ["FORMATS", "picture"]

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
BYTES = 90_000  # of one on the page
ENCODED = 8 << 20  # characters in which one may come
PIXELS = 8_000_000
SIZES = (1400, 1000, 700, 500, 350, 250)  # pixels of the longer side


def picture(kind: str, data: str) -> str | None:
    """The picture as a data address, on white; None if it is none, or too large.

    Args:
        kind: one of `FORMATS`; the bytes must be of this format, whatever other they may pass for.
        data: in base 64.
    """
    if len(data) > ENCODED:
        return None
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
        with Image.open(io.BytesIO(raw), formats=[FORMATS[kind]]) as image:
            if image.width * image.height > PIXELS:
                return None
            pixels = image.convert("RGBA")
    except Exception:  # of a damaged picture, a decoder raises almost anything
        return None
    plain = Image.new("RGB", pixels.size, "white")
    plain.paste(pixels, mask=pixels.getchannel("A"))
    # What is larger would not get small enough without loss, and trying takes longest.
    return _address(plain, "png" if kind != "image/jpeg" and len(raw) <= 3 * BYTES else "jpeg")


def _address(image: Image.Image, kind: str) -> str:
    """Of this kind if that is small enough, else as JPEG, smaller until it is."""
    image.thumbnail((SIZES[0], SIZES[0]))
    data = _encoded(image, kind)
    for size in SIZES:
        if len(data) <= BYTES:
            break
        image.thumbnail((size, size))
        kind, data = "jpeg", _encoded(image, "jpeg")
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()
