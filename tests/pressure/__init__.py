"""Sessions and turns under pressure: parked, preempted into host memory, and without an end."""
