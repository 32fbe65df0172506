"""Memory before any is allocated: sizes as people write them, the plan of slots and pages."""
