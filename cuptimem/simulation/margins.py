"""What another size of the CUDA context would change, by arithmetic alone."""

from cuptimem.simulation.facts import DeviceFacts, Facts
from cuptimem.simulation.launch import Setup

# A workspace at the simulator's allowance is a copy of tensors that are alive then, in single precision at the most
# (cudnn_backend.c): of one byte an element four times as large, of sixteen bits twice.
_WORKSPACE_COPIES = 4


def contexts(device: DeviceFacts, setup: Setup) -> int:
    """How many contexts a run had on a device: one for each process that used it."""
    each = setup.context_range.middle
    return round(device.context / each) if each else 0


def context(device: DeviceFacts, setup: Setup, each: int) -> int:
    """What all contexts on the device take if one takes `each`."""
    return contexts(device, setup) * each


def used(device: DeviceFacts, setup: Setup, each: int) -> int:
    """The device's peak with contexts of that size, as long as that finds room."""
    return device.used - device.context + context(device, setup, each)


def least(device: DeviceFacts, setup: Setup, each: int) -> int:
    """Tensors, contexts and libraries alone: below this no allocator could run it."""
    taken = context(device, setup, each)
    return min(device.used - device.context, device.allocated + device.library) + taken


def fits(facts: Facts, setup: Setup, each: int, memory: int) -> bool:
    """Whether a run that ended well is certain to end well on so much memory with contexts of that size.

    It makes the same requests, and each of them finds room at once: PyTorch's allocator decides nothing otherwise. That
    is not certain of a run in which something was refused, even if PyTorch then emptied its cache and went on.
    """
    if not facts.ended_well or facts.refused or facts.retries or facts.ooms:
        return False
    return all(used(device, setup, each) <= memory for device in facts.devices)


def fits_with_workspaces(facts: Facts, setup: Setup, each: int, memory: int) -> bool:
    """The same, with room for scratch of cuDNN's convolutions and attention as large as it can be.

    One is alive at a time on a stream, and all of its tensors are alive then.
    """
    return fits(facts, setup, each, memory) and all(
        used(device, setup, each) + _WORKSPACE_COPIES * device.allocated <= memory for device in facts.devices
    )


def fullest(facts: Facts, setup: Setup, each: int) -> DeviceFacts | None:
    """The device with the least room with contexts of that size."""
    return max(facts.devices, key=lambda device: used(device, setup, each), default=None)


def may_hang_on_context(facts: Facts, setup: Setup, each: int) -> bool:
    """Whether contexts of that size would leave as much more room as a run that was out of memory lacked then.

    False where nothing is known of what it lacked.
    """
    report = facts.report
    memory = None if report is None or not report.ooms else report.ooms[-1].memory
    lacked = None if memory is None else memory.lacked
    more = max((device.context - context(device, setup, each) for device in facts.devices), default=0)
    return lacked is not None and 0 < lacked <= more
