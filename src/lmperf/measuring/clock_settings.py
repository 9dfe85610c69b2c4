"""Settings of the clocks. The report states them, so this module does not import torch."""

# Bytes written before each call to flush the L2 cache, so that inputs are read from memory: several
# times the size of the L2 cache of any current GPU (60 MB on an H200).
FLUSH_BYTES = 256 * 2**20
# First and longest wait of the device before a call, while the host queues the call.
SHORTEST_LEAD_MS, LONGEST_LEAD_MS = 0.1, 16.0
# A device that stays busy after the last event of a slice (a short run of timed calls) does work
# that was not timed. The phase fails if that work lasts longer than OUTLIVES_MS, longer than
# OUTLIVES_SHARE of the slice, and OUTLIVES_TIMES as long as the longest of IDLE_TRIES waits for an
# idle device, in OUTLIVES_SLICES slices in a row: the host may be woken 0.1 ms late, or later if
# other processes use the cores.
OUTLIVES_MS, OUTLIVES_SHARE, OUTLIVES_SLICES = 0.1, 0.1, 5
OUTLIVES_TIMES, IDLE_TRIES = 2.0, 5
# Number of calls that measure host time. The loop that measures eager time is limited to so many
# calls, ms, and bytes that its calls keep alive.
HOST_CALLS, LOOP_CALLS, LOOP_MS, LOOP_BYTES = 7, 20, 40.0, 2 * 2**30
# Device events must report at least the share OTHER_CLOCK of the time that a slice takes by the
# host's clock, with a tolerance of OTHER_CLOCK_MS for a host that is woken late. If they do not,
# the slice is repeated; the phase fails after OTHER_CLOCK_SLICES such slices in a row.
OTHER_CLOCK, OTHER_CLOCK_MS, OTHER_CLOCK_SLICES = 0.8, 2.0, 5
