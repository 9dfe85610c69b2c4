"""What the tests know of the processes that they start."""

from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "Z" not in text.rpartition(")")[2].split()[0]
