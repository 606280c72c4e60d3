"""A screenshot as a PNG of at most 256 colours: less than half of the bytes, without a package.

The browser decodes the screenshot and counts its colours; the most frequent ones stay, and every
other one becomes the nearest of them.  Text loses a few of the greys at its edges.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
REDUCE: Final = """async (picture) => {
  const bitmap = await createImageBitmap(await (await fetch(picture)).blob());
  const { width, height } = bitmap;
  const paint = new OffscreenCanvas(width, height).getContext("2d");
  paint.drawImage(bitmap, 0, 0);
  const pixels = new Uint32Array(paint.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map();
  for (const one of pixels) counts.set(one, (counts.get(one) ?? 0) + 1);
  const colours = [...counts.keys()].toSorted((a, b) => counts.get(b) - counts.get(a));
  const kept = colours.slice(0, 256);
  const parts = (one) => [one & 255, (one >> 8) & 255, (one >> 16) & 255];
  const apart = (a, b) => parts(a).reduce((sum, part, at) => sum + (part - parts(b)[at]) ** 2, 0);
  const nearest = (one) => kept.reduce(
    (best, _, at) => (apart(kept[at], one) < apart(kept[best], one) ? at : best), 0);
  const place = new Map(colours.map((one, at) => [one, at < 256 ? at : nearest(one)]));
  const text = (bytes) => bytes.reduce((all, byte) => all + String.fromCharCode(byte), "");
  const places = btoa(text(Uint8Array.from(pixels, (one) => place.get(one))));
  return { width, height, palette: kept.flatMap(parts), places };
}"""


def in_few_colours(page: Page, png: bytes) -> bytes:
    """``page``: one without a policy that forbids it to read ``data:`` addresses."""
    url = "data:image/png;base64," + base64.b64encode(png).decode()
    found = page.evaluate(REDUCE, url)
    width, height = found["width"], found["height"]
    places = base64.b64decode(found["places"])
    lines = (b"\0" + places[at : at + width] for at in range(0, len(places), width))
    return SIGNATURE + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(found["palette"])),
            _chunk(b"IDAT", zlib.compress(b"".join(lines), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
