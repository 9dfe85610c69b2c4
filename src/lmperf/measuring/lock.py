import contextlib


@contextlib.contextmanager
def machine_lock(say):
    yield
