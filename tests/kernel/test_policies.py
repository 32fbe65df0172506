"""Ranks: total, fixed at submit, and fair in the way that each policy's name says."""

import itertools
from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.config import EngineConfig, SchedulingPolicy
from kernel.policies import (
    Deadline,
    FirstCome,
    Policy,
    PriorityWithAging,
    TurnFacts,
    WeightedFair,
    make_policy,
)

POLICIES: list[Policy] = [FirstCome(), PriorityWithAging(10.0), WeightedFair(), Deadline()]


def turn(number: int, arrival_s: float = 0.0, **facts: Any) -> TurnFacts:
    return TurnFacts(arrival_s=arrival_s, arrival_number=number, **facts)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
def test_ranks_are_total_even_among_twins(policy: Policy) -> None:
    """Two turns of equal rank could each preempt the other for ever."""
    ranks = [policy.rank(turn(number)) for number in range(5)]

    assert len(set(ranks)) == 5
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fcfs", FirstCome),
        ("priority", PriorityWithAging),
        ("fair", WeightedFair),
        ("deadline", Deadline),
    ],
)
def test_configuration_names_the_policy(name: SchedulingPolicy, kind: type) -> None:
    """Each engine gets one of its own: the fair one keeps tenants' clocks."""
    config = EngineConfig(scheduling_policy=name)

    assert type(make_policy(config)) is kind
    assert name == "fcfs" or make_policy(config) is not make_policy(config)


def test_urgent_turn_goes_first_until_the_other_has_waited_its_weight() -> None:
    """Priority 0 is worth ten seconds against priority 1, no more: nobody starves."""
    policy = PriorityWithAging(10.0)
    patient = policy.rank(turn(0, arrival_s=0.0, priority=1))

    assert policy.rank(turn(1, arrival_s=9.9, priority=0)) < patient
    assert policy.rank(turn(2, arrival_s=10.1, priority=0)) > patient


def test_earliest_deadline_first_and_none_last() -> None:
    """A turn without a deadline can wait by its own word."""
    policy = Deadline()
    ranks = [
        policy.rank(turn(0)),
        policy.rank(turn(1, deadline_s=9.0)),
        policy.rank(turn(2, deadline_s=3.0)),
        policy.rank(turn(3)),
    ]

    assert sorted(ranks) == [ranks[2], ranks[1], ranks[0], ranks[3]]


def serve(policy: Policy, waiting: list[tuple[tuple[float, int], str]], count: int) -> list[str]:
    """Admit the most senior ``count`` turns; returns their tenants in that order."""
    waiting.sort()
    served: list[str] = []
    for _ in range(count):
        rank, tenant = waiting.pop(0)
        policy.admitted(rank)
        served.append(tenant)
    return served


def test_tenants_share_by_weight() -> None:
    """With work waiting from both, a weight of 3 gets three tokens for each one."""
    policy = WeightedFair({"a": 3.0, "b": 1.0})
    waiting = [
        (policy.rank(turn(number, tenant=tenant, cost_tokens=10)), tenant)
        for number, tenant in enumerate(itertools.islice(itertools.cycle("ab"), 80))
    ]

    assert Counter(serve(policy, waiting, 40)) == {"a": 30, "b": 10}


def test_a_tenant_that_was_away_gets_no_credit() -> None:
    """Else one could save up and then shut the others out."""
    policy = WeightedFair()
    early = [(policy.rank(turn(n, tenant="busy", cost_tokens=10)), "busy") for n in range(50)]
    serve(policy, early, 50)
    late = [
        (policy.rank(turn(50 + n, tenant=tenant, cost_tokens=10)), tenant)
        for n, tenant in enumerate(["busy", "away"] * 10)
    ]

    assert Counter(serve(policy, late, 10)) == {"busy": 5, "away": 5}


def test_preempted_turn_admitted_again_does_not_turn_the_clock_back() -> None:
    """Its rank is an old one."""
    policy = WeightedFair()
    first = policy.rank(turn(0, tenant="a", cost_tokens=10))
    policy.admitted((500.0, 1))
    policy.admitted(first)

    assert policy.rank(turn(2, tenant="b", cost_tokens=10)) == (510.0, 2)


def test_memory_is_bounded_by_busy_tenants() -> None:
    """A tenant a request must not add up: tenants come from outside."""
    policy = WeightedFair()
    for number in range(20_000):
        policy.admitted(policy.rank(turn(number, tenant=str(number))))

    assert len(attrs.asdict(policy)["_finish"]) <= 1025


@given(
    costs=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.booleans()), max_size=60
    )
)
def test_ranks_of_one_tenant_keep_the_order_of_arrival(costs: list[tuple[str, int, bool]]) -> None:
    """Within a tenant nobody is overtaken, whatever is admitted in between."""
    policy = WeightedFair({"a": 2.0})
    last: dict[str, tuple[float, int]] = {}
    for number, (tenant, cost, admit) in enumerate(costs):
        rank = policy.rank(turn(number, tenant=tenant, cost_tokens=cost))
        assert rank > last.get(tenant, (0.0, -1))
        last[tenant] = rank
        if admit:
            policy.admitted(rank)
