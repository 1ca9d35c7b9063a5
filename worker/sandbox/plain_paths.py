"""Replace the attempt's folders in a program's output by the words of docs/reductions.md.

Their paths differ from attempt to attempt and mean nothing to the package's author.
"""

import os
import re

from worker.sandbox.sandbox import CHECKPOINT, Places


class PlainPaths:
    """Replaces paths in text that arrives in parts.

    `seen` are the folders as the program sees them; a file of the package keeps its path inside the
    package.
    """

    def __init__(self, seen: Places) -> None:
        self._words = {
            os.fsencode(seen.package) + b"/": b"",
            os.fsencode(seen.inputs): b"INPUT_DIR",
            os.fsencode(seen.outputs): b"OUTPUT_DIR",
            os.fsencode(seen.temporary): b"TMPDIR",
        }
        if seen.checkpoint is not None:
            self._words[os.fsencode(seen.checkpoint)] = CHECKPOINT.encode()
        self._path = re.compile(b"|".join(map(re.escape, self._words)))
        self._longest = max(map(len, self._words))
        self._begun = b""

    def put(self, data: bytes) -> bytes:
        """Return the text that is final; hold back what may be the beginning of a path."""
        text = self._begun + data
        most = min(len(text), self._longest - 1)
        held = next((n for n in range(most, 0, -1) if self._may_begin(text[-n:])), 0)
        self._begun = text[len(text) - held :]
        return self._replaced(text[: len(text) - held])

    def end(self) -> bytes:
        """Return what was held back, because nothing more comes."""
        text, self._begun = self._begun, b""
        return self._replaced(text)

    def _may_begin(self, text: bytes) -> bool:
        return any(path.startswith(text) for path in self._words)

    def _replaced(self, text: bytes) -> bytes:
        return self._path.sub(lambda found: self._words[found[0]], text)
