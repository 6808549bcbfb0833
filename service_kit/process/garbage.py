"""Garbage collections during a load: none, because what is loaded stays.

After each 50,000 new objects Python looks for garbage among the newest objects, and sometimes among all. Example: a broker starts
with 1,000,000 partitions.
  1. The load makes objects that the image keeps, so each look walks them in vain. All looks take a sixth of the load.
  2. Without looks the load makes the same objects. At its end they are *frozen*: no later look walks them.
  3. The broker drops a part of the image later. Its memory is free at once, because an image has no cycles.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_loads = 0
_is_usual = False


@contextmanager
def loading_for_good() -> Iterator[None]:
    """Stops garbage collections inside of the block, and exempts from later ones all objects that there are at its end.

    Blocks may overlap, also on several threads. A process that has switched collections off keeps them off.
    """
    global _loads, _is_usual
    with _lock:
        if _loads == 0:
            _is_usual = gc.isenabled()
            gc.disable()
        _loads += 1
    try:
        yield
    finally:
        with _lock:
            _loads -= 1
            gc.freeze()  # before `enable`: the next new object would begin a look at all that was loaded
            if _loads == 0 and _is_usual:
                gc.enable()
