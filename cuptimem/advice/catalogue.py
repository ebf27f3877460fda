"""All techniques, in the order of their documentation."""

from cuptimem.advice.attention import FUSED_ATTENTION
from cuptimem.advice.batches import ACCUMULATE, BATCH
from cuptimem.advice.checkpoint import CHECKPOINT
from cuptimem.advice.copies import EXPAND
from cuptimem.advice.data import LOAD_LATE
from cuptimem.advice.evaluation import KEEP_EVALUATION
from cuptimem.advice.garbage import COLLECT
from cuptimem.advice.gradients import SET_TO_NONE, ZERO_GRAD_LATE
from cuptimem.advice.in_place import IN_PLACE
from cuptimem.advice.loss import CHUNKED_LOSS
from cuptimem.advice.no_grad import NO_GRAD
from cuptimem.advice.optimizers import ADAM8BIT, FACTORED, FUSED, NO_FOREACH, SGD, STEP_IN_BACKWARD
from cuptimem.advice.precision import HALF_MODEL, SINGLE_PRECISION
from cuptimem.advice.release import RELEASE
from cuptimem.advice.retained import RETAIN_GRAPH
from cuptimem.advice.saved import OFFLOAD
from cuptimem.advice.snapshots import HOST_SNAPSHOT
from cuptimem.advice.technique import Technique
from cuptimem.advice.views import CLONE_VIEW

TECHNIQUES: tuple[Technique, ...] = (
    ZERO_GRAD_LATE,
    SET_TO_NONE,
    NO_GRAD,
    RETAIN_GRAPH,
    KEEP_EVALUATION,
    LOAD_LATE,
    HOST_SNAPSHOT,
    EXPAND,
    CLONE_VIEW,
    COLLECT,
    RELEASE,
    IN_PLACE,
    FUSED_ATTENTION,
    FUSED,
    NO_FOREACH,
    CHECKPOINT,
    SGD,
    ADAM8BIT,
    FACTORED,
    STEP_IN_BACKWARD,
    ACCUMULATE,
    BATCH,
    CHUNKED_LOSS,
    OFFLOAD,
    SINGLE_PRECISION,
    HALF_MODEL,
)
