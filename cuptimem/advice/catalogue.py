"""All techniques, in the order of their documentation."""

from cuptimem.advice.checkpoint import CHECKPOINT
from cuptimem.advice.gradients import SET_TO_NONE, ZERO_GRAD_LATE
from cuptimem.advice.optimizers import ADAM8BIT, FUSED, NO_FOREACH, SGD, STEP_IN_BACKWARD
from cuptimem.advice.release import RELEASE
from cuptimem.advice.technique import Technique

TECHNIQUES: tuple[Technique, ...] = (
    ZERO_GRAD_LATE,
    SET_TO_NONE,
    RELEASE,
    FUSED,
    NO_FOREACH,
    CHECKPOINT,
    SGD,
    ADAM8BIT,
    STEP_IN_BACKWARD,
)
