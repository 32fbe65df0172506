"""Bugs that the type checkers stop before anything runs."""

from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    Mutant(
        "seed-rollback-typed",
        "A session's state is not given back as if it were a turn's.",
        "kernel/sessions/kept_states.py",
        "version=NO_STATE)\n        self._port.close(self.kept.pop(version))\n",
        "version=NO_STATE)\n        self._port.rollback(self.kept.pop(version))\n",
        rule="the seed's rollback, as its author would write it",
    ),
    Mutant(
        "scheduler-closes-a-session",
        "The scheduler has no verb that ends a session's state.",
        "kernel/scheduling/workload.py",
        "        self.port.rollback(self.claims.pop(turn.id))",
        "        self.port.close(self.claims.pop(turn.id))",
        rule="each verb accepts one type",
    ),
    Mutant(
        "refusal-used-as-a-claim",
        "A refusal is a value of another type than a claim.",
        "kernel/scheduling/admission.py",
        "        if isinstance(claim, Refused):\n            return False\n        turn.position",
        "        turn.position",
        rule="no value stands for 'maybe'",
    ),
    Mutant(
        "lease-rolled-back",
        "A lease ends by landing alone.",
        "kernel/devices/recovery.py",
        "            self._port.rollback(claim)\n",
        "            self._port.rollback(lease)\n",
        rule="4.2 lease never reclaimed",
    ),
]
