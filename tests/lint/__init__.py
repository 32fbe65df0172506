"""The move checker, proven and measured: golden programs, planted move faults, other libraries."""
