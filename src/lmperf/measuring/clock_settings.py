"""Settings of the clocks, in a module without torch: the report states them."""

# Several times the L2 cache of any current device (60 MB on an H200): inputs come from memory.
FLUSH_BYTES = 256 * 2**20
# Wait of the device before a call, at first and at most.
SHORTEST_LEAD_MS, LONGEST_LEAD_MS = 0.1, 16.0
# A device that stays busy after the last event of a slice does work that was not timed. It counts
# if it lasts for this time and for this share of the slice, in so many slices in a row, and so many
# times longer than the longest of some waits after work of the clock itself: the host may be woken
# 0.1 ms late, or later if other processes use the cores.
OUTLIVES_MS, OUTLIVES_SHARE, OUTLIVES_SLICES = 0.1, 0.1, 5
OUTLIVES_TIMES, IDLE_TRIES = 2.0, 5
# Calls that measure host time; calls, ms and bytes kept alive of the loop that measures eager time.
HOST_CALLS, LOOP_CALLS, LOOP_MS, LOOP_BYTES = 7, 20, 40.0, 2 * 2**30
# Device events must report at least this share of the host's time of a slice, with a tolerance in
# ms for a host that is woken late. The slice is repeated up to so many times.
OTHER_CLOCK, OTHER_CLOCK_MS, OTHER_CLOCK_SLICES = 0.8, 2.0, 5
