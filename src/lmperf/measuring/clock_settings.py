"""Settings of the clocks. The report states them, so this module does not import torch."""

# Bytes written before each call to flush the L2 cache, so that inputs are read from memory: several
# times the size of the L2 cache of any current GPU (60 MB on an H200).
FLUSH_BYTES = 256 * 2**20
# First and longest wait of the device before a call, while the host queues the call.
SHORTEST_LEAD_MS, LONGEST_LEAD_MS = 0.1, 16.0
# A device that stays busy after the last event of a slice (a short run of timed calls) does work
# that was not timed. A wait for the device after a slice is suspicious if it takes longer than
# OUTLIVES_MS, than OUTLIVES_SHARE of the slice, and than OUTLIVES_TIMES the longest of IDLE_TRIES
# waits after as many calls that do nothing. A suspicious wait may be that of a slow driver or of a
# host that wakes late. So the host pauses before the wait of the next slice for OUTLIVES_TIMES the
# suspicious wait. Work has ended by then, and if this wait is OUTLIVES_TIMES shorter, it was work
# that outlived its call. The phase fails if that is found OUTLIVES_FOUND times in a row.
OUTLIVES_MS, OUTLIVES_SHARE, OUTLIVES_FOUND = 0.1, 0.1, 3
OUTLIVES_TIMES, IDLE_TRIES = 2.0, 3
# Number of calls that measure host time. The loop that measures eager time is limited to so many
# calls, ms, and bytes that its calls keep alive.
HOST_CALLS, LOOP_CALLS, LOOP_MS, LOOP_BYTES = 7, 20, 40.0, 2 * 2**30
# Two clocks must agree on the time of a slice: device events with the worker's clock, and the
# worker's clock with the supervisor's. They may differ by the share 1 - OTHER_CLOCK and by
# OTHER_CLOCK_MS, or ANSWER_MS for an answer to reach the supervisor. If they differ by more, the
# next slice has twice the calls: a host that is woken late is not later after a longer slice. It
# begins after a pause, at first of OTHER_CLOCK_PAUSE_S and then twice as long each time: a virtual
# machine may be woken late for tenths of a second. The phase fails after OTHER_CLOCK_SLICES such
# slices in a row.
OTHER_CLOCK, OTHER_CLOCK_MS, OTHER_CLOCK_SLICES, OTHER_CLOCK_PAUSE_S = 0.95, 0.3, 6, 0.05
ANSWER_MS = 1.0
