"""What a worker writes: lines that can be seen, and the last of them."""

import os

from lmperf.measuring.output import Output


def lines_of(*chunks):
    heard = []
    output = Output(heard.append)
    for chunk in chunks:
        os.write(output.theirs, chunk)
        output.read()
    output.read()  # nothing is there: it does not wait
    os.close(output.theirs)
    return heard, output


def test_lines_are_handed_on_whole_and_visible():
    heard, output = lines_of(b"one\ntw", b"o\n\n\x1b[31m \xff\0\n", b"with no end")
    assert heard == ["one", "two", r"\x1b[31m \xff\x00"]
    assert output.last == "with no end"
    output.close()


def test_a_line_without_an_end_is_kept_in_part():
    heard, output = lines_of(*[b"x" * 2**14] * 8)
    assert heard == [] and 0 < len(output._unended) < 2**14
    output.close()


def test_it_is_not_waited_for_once_all_writers_are_gone():
    _, output = lines_of(b"last words")
    assert output.readable
    output.read()
    assert not output.readable and output.last == "last words"
    output.close()
    output.close()
