"""Take a share of a core until the standard input ends: `python -m bench.portal.burner SHARE`.

It stands for the crowd, which would sit on other machines: it takes the processor time that the
crowd takes on this one, and calls nobody.
"""

import sys
import threading
import time

_PAUSE = 0.005  # seconds: the crowd, too, works in many short spells


def main(share: float) -> None:
    """Burn."""
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    began = time.monotonic()
    while not ended.wait(_PAUSE):
        while time.process_time() < share * (time.monotonic() - began):
            pass


if __name__ == "__main__":
    main(float(sys.argv[1]))
