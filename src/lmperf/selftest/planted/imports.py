"""Attention that starts a process when it is imported, in a session of its own."""

import subprocess
import sys

from lmperf.attention.reference import attention
from lmperf.selftest.planted import LEFT_BEHIND

subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(300)", LEFT_BEHIND], start_new_session=True
)


def leaves_a_process(q, k, v, causal=False):
    return attention(q, k, v, causal)
