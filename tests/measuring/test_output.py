"""Tests of a worker's output: its lines are printable, and the last lines are kept."""

import os

from lmperf.measuring.output import Output


def lines_of(*chunks):
    lines = []
    output = Output(lines.append)
    for chunk in chunks:
        os.write(output.theirs, chunk)
        output.read()
    output.read()  # returns at once when there is no output
    os.close(output.theirs)
    return lines, output


def test_output_lines_are_whole_and_printable():
    lines, output = lines_of(b"one\ntw", b"o\n\n\x1b[31m \xff\0\n", b"with no end")
    assert lines == ["one", "two", r"\x1b[31m \xff\x00"]
    assert output.last == "with no end"
    output.close()


def test_part_of_an_endless_line_is_kept():
    lines, output = lines_of(*[b"x" * 2**14] * 8)
    assert lines == [] and 0 < len(output._unended) < 2**14
    output.close()


def test_closed_pipe_is_not_readable():
    _, output = lines_of(b"last words")
    assert output.readable
    output.read()
    assert not output.readable and output.last == "last words"
    output.close()
    output.close()
