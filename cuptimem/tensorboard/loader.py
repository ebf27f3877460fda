"""What TensorBoard loads of cuptimem at its start.

TensorBoard imports the entry points of all plugins without a guard: an exception here would end every `tensorboard`
of the environment. So this module needs nothing but TensorBoard, and everything else is loaded behind one.
"""

from typing import Any

from tensorboard.plugins import base_plugin


class Loader(base_plugin.TBLoader):  # type: ignore[misc]  # TensorBoard has no types
    def load(self, context: Any) -> Any:
        """The plugin; None, with a line in TensorBoard's log, if it cannot be loaded."""
        try:
            from cuptimem.tensorboard.plugin import Plugin

            return Plugin(context)
        except Exception as error:  # whatever is wrong with cuptimem, TensorBoard goes on without it
            from tensorboard.util import tb_logging

            tb_logging.get_logger().warning("cuptimem's Memory page is not there: %r", error)
            return None
