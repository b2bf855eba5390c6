"""Random calls for minutes: public functions over random layouts, kinds of array, streams and graphs, from several threads, each
result beside the oracle: ``python -m tests.soak --minutes 2 --device ptx``.

`step` says what one call is, `relaid` the layouts of its operands, `world` carries it out, `draw` thinks calls up, `job` runs
them in one process, `shrink` makes a failure small, `__main__` starts the jobs and writes the record.
"""

from .step import Step
from .world import World, replay

__all__ = ["Step", "World", "replay"]
