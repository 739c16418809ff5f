from support.one_thread import one_torch_thread

__all__ = ["one_torch_thread"]
