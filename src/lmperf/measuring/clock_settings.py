"""What the clocks are set to, apart from them: a report states it, and is made without torch."""

# Several times the L2 of any present device (60 MB on an H200), so that inputs come from memory.
FLUSH_BYTES = 256 * 2**20
# How long the device waits before a call, at first and at most.
SHORTEST_LEAD_MS, LONGEST_LEAD_MS = 0.1, 16.0
# Work that is still running this long after the last event of a slice, and for this share of its
# times, was not timed; now and then it is the host, which was not woken at once. It must also be
# so many times as long as the worst of some waits after work of the clock's own, which has passed:
# 0.1 ms and more where other processes have the cores.
OUTLIVES_MS, OUTLIVES_SHARE, OUTLIVES_SLICES = 0.1, 0.1, 5
OUTLIVES_TIMES, IDLE_TRIES = 2.0, 5
# Calls that tell how long one takes to be queued, or takes in a loop; and what they may keep alive.
HOST_CALLS, LOOP_CALLS, LOOP_MS, LOOP_BYTES = 7, 20, 40.0, 2 * 2**30
# The events of the device must tell at least this share of the host's time of a slice, but for some
# ms in which the host is waked; a host that was waked later still is not so in several in a row.
OTHER_CLOCK, OTHER_CLOCK_MS, OTHER_CLOCK_SLICES = 0.8, 2.0, 5
