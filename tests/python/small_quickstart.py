"""The quickstart with a mixer that is small, where races are decided: as $RACES says, which is won
or disturbed, in the first process; won in the second."""

import os
import sys
from functools import partial
from pathlib import Path

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(_EXAMPLES))

import example_models  # noqa: E402
import quickstart  # noqa: E402
import torch  # noqa: E402
from cudaforge_backend.integration import gate  # noqa: E402
from forged import disturb_every_race, win_every_race  # noqa: E402


def _mixer(device: str) -> example_models.Example:
    torch.manual_seed(2)
    x, targets = torch.randn(2, 32, 48), torch.randint(10, (2, 32))
    return example_models.Example("mixer", example_models.Mixer(48, 1, 10), (x,), (x, targets))


example_models.EXAMPLES["mixer"] = _mixer
quickstart.__file__ = __file__  # what the second process runs
quickstart.time_interleaved = partial(quickstart.time_interleaved, budget_s=0.1)
if os.environ["RACES"] == "disturbed" and "--second" not in sys.argv:
    disturb_every_race()
else:
    obstacle = gate.obstacle
    win_every_race()
    gate.obstacle, gate.fastest_of = obstacle, lambda overs, ms: [*overs][-1]
sys.exit(quickstart.main())
