"""Tools that prove the kernel, made for the code of its users as well.

:mod:`kernel.testing.explorer` walks every order of events of a small world,
:mod:`kernel.testing.simulation` runs seeded random worlds on virtual time. Nothing in the kernel
imports this package.
"""
