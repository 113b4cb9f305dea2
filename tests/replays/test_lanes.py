"""Plans of several devices played side by side: they agree with the simulator of placed steps, and share engines."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import GraphError, PlanError
from tensortide.graph import Graph, Role
from tensortide.placements.graphs import Grouping, units_of
from tensortide.placements.graphs.placed_plan import plan_of
from tensortide.placements.graphs.schedules import strict_order
from tensortide.placements.graphs.simulate import Simulator
from tensortide.placements.graphs.tables import step_of
from tensortide.plans import Compute, Fetch, Lane, Offload, Plan, Receive, Send
from tensortide.replays.lanes import LanesTimeline, replay_lanes
from tensortide.timelines.events import Kind
from tensortide.timing.clusters import Channel, Cluster, ClusterDevice, ClusterLink, Tier, both_ways
from tensortide.timing.links import Link
from tests.graphs import Builder, graphs, stored
from tests.placements.graphs.steps import GPU, cluster
from tests.placements.graphs.steps import line as in_a_row

BYTE_PER_NS = Link("wire", Fraction(10**9), 0)


def by_kind(line: LanesTimeline, kind: Kind) -> list[tuple[int, str, int, int]]:
    """Storage or op, lane, start and end of the events of a kind."""
    events = line.events
    rows = zip(events.kind, events.index, events.lane, events.start_ns, events.end_ns, strict=True)
    return [(int(index), line.lanes[lane], int(a), int(b)) for each, index, lane, a, b in rows if each == kind]


def assert_plays_alike(graph: Graph, machine: Cluster, place: list[int], times: list[list[int]]) -> bool:
    """Simulate a placement, and play its Plan. Returns True if anything crosses."""
    step = step_of(units_of(graph, Grouping("closure")), machine, times, workspace=False)
    run = Simulator(step).run(place)
    plan = plan_of(run)
    if run.free_copies or any(
        step.values.values[value].nbytes != graph.storages[step.values.values[value].storage].nbytes
        for value in run.sent.tolist()
    ):
        return False  # what is the same on all devices is not sent, and of some storages only a part
    line = replay_lanes(graph, plan, times, machine, workspace=False)
    # The Plan has the order in which ops ran, so that the simulator, too, is to keep to it.
    sequences = [[each.op for each in lane.steps if isinstance(each, Compute)] for lane in plan.lanes]
    kept = Simulator(step).run(place, strict_order(step, sequences))
    assert line.makespan_ns == kept.makespan_ns
    assert sorted((op, a, b) for op, _, a, b in by_kind(line, Kind.RUN)) == [
        (op, a, b) for op, (a, b) in enumerate(zip(kept.start_ns.tolist(), kept.end_ns.tolist(), strict=True))
    ]
    return len(run.sent) > 0


@pytest.mark.property
@given(graphs(), st.integers(1, 3), st.booleans(), st.data())
def test_a_plan_of_a_placement_takes_as_long_as_is_simulated(
    graph: Graph, count: int, back: bool, data: st.DataObject
) -> None:
    units = len(units_of(graph, Grouping("closure")))
    place = [data.draw(st.integers(0, count - 1)) for _ in range(units)]
    ops = len(graph)
    times = [data.draw(st.lists(st.integers(1, 900), min_size=ops, max_size=ops)) for _ in range(count)]
    if ops:
        link = Link("wire", Fraction(3 * 10**8), 40, "", Fraction(10**8) if back else None)
        assert_plays_alike(graph, cluster(count, link), place, times)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("duplex", [True, False])
def test_devices_that_share_one_channel_wait_for_each_other_as_is_simulated(seed: int, duplex: bool) -> None:
    """With times that are drawn no two transfers are ready at the same moment, where either could go first."""
    graph, draw, count = stored("gpt2"), random.Random(seed), 2 + seed % 2
    pairs = both_ways([*itertools.combinations(range(count), 2)])
    links = tuple(ClusterLink(each.source, each.target, 0) for each in pairs)
    bus = Channel(Link("bus", Fraction(10**9), 40), duplex)
    machine = Cluster("bus", cluster(count).devices, links, (bus,))
    place = [draw.randrange(count) for _ in range(len(units_of(graph, Grouping("closure"))))]
    times = [[draw.randrange(1000, 10**6) for _ in graph.ops] for _ in range(count)]
    assert assert_plays_alike(graph, machine, place, times)


def stages() -> Graph:
    """Two stages: op 0 makes an activation of 100 bytes (storage 1) and op 1 the output of the stage (2); op 2 is the
    second stage's (3); ops 3 and 4 go back, and op 5 updates the weight (storage 0)."""
    builder = Builder()
    weight = builder.storage(8, Role.PARAMETER, name="w")
    activation = builder.storage(100, birth=0, death=5)
    crossing = builder.storage(40, birth=1, death=3)
    loss = builder.storage(4, birth=2, death=4)
    gradient = builder.storage(40, birth=3, death=5)
    of_weight = builder.storage(8, birth=4, death=6)
    builder.op([weight], [activation])
    builder.op([activation], [crossing])
    builder.op([crossing], [loss])
    builder.op([loss], [gradient])
    builder.op([gradient, activation], [of_weight])
    builder.op([of_weight, weight], [weight], mutated=(1,))
    return builder.graph()


def two_stages(graph: Graph, tiers: tuple[Tier, ...], *, to: str = "host", budget: int | None = None) -> LanesTimeline:
    """The step of ``stages``, whose first offloads its activation meanwhile; stages are joined by channel 0."""
    first = (Compute(0), Compute(1), Offload(1, to), Send(2, 1), Receive(4, 1), Fetch(1, to), Compute(4))
    second = (Receive(2, 0), Compute(2), Compute(3), Send(4, 0))
    plan = Plan(graph.index.digest, (Lane("gpu0", (*first, Compute(5))), Lane("gpu1", second)))
    devices = (ClusterDevice("gpu0", GPU, budget, tiers), ClusterDevice("gpu1", GPU))
    machine = Cluster("two", devices, both_ways([(0, 1)]), (Channel(BYTE_PER_NS),))
    return replay_lanes(graph, plan, [[10] * len(graph)] * 2, machine, workspace=False)


HOST = Link("host", Fraction(10**9), 0)


def test_stages_send_and_offload_over_one_link() -> None:
    alone, shared = (two_stages(stages(), (Tier(HOST, channel=channel),)) for channel in (None, 0))
    assert (
        alone.lanes == shared.lanes == (*alone.devices, "gpu0 host out", "gpu0 host in", "gpu0 > gpu1", "gpu1 > gpu0")
    )
    # The offload is issued as soon as op 1 is, and moves what is complete at 10 while that runs.
    # Alone: the output is complete at 20, the gradient at 80; the fetch begins when the copy is whole.
    assert by_kind(alone, Kind.OFFLOAD) == [(1, "gpu0 host out", 10, 110)]
    assert by_kind(alone, Kind.SEND) == [(2, "gpu0 > gpu1", 20, 60), (4, "gpu1 > gpu0", 80, 120)]
    assert by_kind(alone, Kind.FETCH) == [(1, "gpu0 host in", 110, 210)]
    assert alone.makespan_ns == 230
    # Shared: the output waits for the offload, and the gradient, complete at 170, for the fetch.
    assert by_kind(shared, Kind.OFFLOAD) == [(1, "gpu0 host out", 10, 110)]
    assert by_kind(shared, Kind.FETCH) == [(1, "gpu0 host in", 110, 210)]
    assert by_kind(shared, Kind.SEND) == [(2, "gpu0 > gpu1", 110, 150), (4, "gpu1 > gpu0", 210, 250)]
    assert shared.makespan_ns == 270
    # Bytes are held from the issue of a transfer on, also while it waits for its engine.
    for line in (alone, shared):
        assert tuple(int(level.max()) for _, level in line.levels) == line.peaks_bytes == (248, 44)


def updated_after_it_is_sent(*last: Offload) -> LanesTimeline:
    """Two lanes: op 0 of the second reads a weight of 100 bytes of the first, whose op 1 updates it."""
    builder = Builder()
    weight = builder.storage(100, Role.PARAMETER, name="w")
    made = builder.storage(4, birth=0)
    builder.op([weight], [made])
    builder.op([weight], [weight], mutated=(0,))
    graph = builder.graph()
    first = Lane("gpu0", (Send(0, 1), Compute(1), *last))
    plan = Plan(graph.index.digest, (first, Lane("gpu1", (Receive(0, 0), Compute(0)))))
    devices = (ClusterDevice("gpu0", GPU, None, (Tier(HOST),)), ClusterDevice("gpu1", GPU))
    machine = Cluster("two", devices, both_ways([(0, 1)]), (Channel(BYTE_PER_NS),))
    return replay_lanes(graph, plan, [[10, 10]] * 2, machine, workspace=False)


def test_an_update_waits_until_what_it_changes_has_left() -> None:
    assert by_kind(updated_after_it_is_sent(), Kind.RUN) == [(1, "gpu0", 100, 110), (0, "gpu1", 100, 110)]


def test_a_lane_leaves_what_is_at_home_there() -> None:
    with pytest.raises(PlanError, match=r"lane 0 \(gpu0\): after its last step the plan needs on the device storage 0"):
        updated_after_it_is_sent(Offload(0, "host"))


def test_a_tier_over_another_waits_for_it_and_is_no_faster() -> None:
    fast = Link("ssd", Fraction(2 * 10**9), 7)
    beside, over = (two_stages(stages(), (Tier(HOST, channel=0), Tier(fast, each)), to="ssd") for each in ("", "host"))
    assert by_kind(beside, Kind.OFFLOAD) == [(1, "gpu0 ssd out", 10, 67)]
    assert by_kind(beside, Kind.SEND)[0] == (2, "gpu0 > gpu1", 20, 60)
    assert by_kind(over, Kind.OFFLOAD) == [(1, "gpu0 ssd out", 10, 117)]
    assert by_kind(over, Kind.SEND)[0] == (2, "gpu0 > gpu1", 117, 157)


def test_what_does_not_fit_or_cannot_cross_says_where() -> None:
    graph, tiers = stages(), (Tier(HOST, channel=0),)
    assert two_stages(graph, tiers).peaks_bytes == (248, 44)
    assert two_stages(graph, tiers, budget=156).peaks_bytes[0] <= 156
    with pytest.raises(PlanError, match=r"lane 0 \(gpu0\), step 1 .* does not fit: it needs 40 bytes") as caught:
        two_stages(graph, tiers, budget=147)
    assert caught.value.short_bytes == 1
    times = [[1] * len(graph)] * 2
    one_way = Cluster("two", cluster(2).devices, (ClusterLink(0, 1, 0),), (Channel(BYTE_PER_NS),))
    with pytest.raises(PlanError, match=r"lane 1 \(gpu1\), step 3 sends storage 4 to gpu0: no link joins them"):
        replay_lanes(graph, plan_of_stages(graph), times, one_way)
    small = cluster(2, capacity_bytes=100)
    with pytest.raises(PlanError, match=r"lane 0 \(gpu0\), step 0 .* does not fit"):
        replay_lanes(graph, plan_of_stages(graph), times, small)
    assert replay_lanes(graph, plan_of_stages(graph), times, small, limited=False).peaks_bytes[0] > 100


def plan_of_stages(graph: Graph, *names: str) -> Plan:
    """The Plan of ``stages``, which offloads nothing."""
    first = (Compute(0), Compute(1), Send(2, 1), Receive(4, 1), Compute(4), Compute(5))
    second = (Receive(2, 0), Compute(2), Compute(3), Send(4, 0))
    lanes = zip(names or ("gpu0", "gpu1"), (first, second), strict=True)
    return Plan(graph.index.digest, tuple(Lane(name, steps) for name, steps in lanes))


def test_lanes_find_their_devices_by_name_or_in_order() -> None:
    graph = stages()
    times = [[1] * len(graph)] * 2
    row = in_a_row(3)  # of which the first and the last are not joined
    assert replay_lanes(graph, plan_of_stages(graph, "gpu2", "gpu1"), times, row).lanes[2:] == (
        "gpu2 > gpu1",
        "gpu1 > gpu2",
    )
    with pytest.raises(PlanError, match=r"sends storage 2 to gpu2: the fastest way there is over gpu1, and lanes send"):
        replay_lanes(graph, plan_of_stages(graph, "gpu0", "gpu2"), times, row)
    assert replay_lanes(graph, plan_of_stages(graph, "a", "b"), times, cluster(2)).devices == ("a", "b")
    for names, wrong in ((("gpu0", "b"), "lane 1 runs on 'b'"), (("a", "b"), "lane 0 runs on 'a'")):
        with pytest.raises(PlanError, match=rf"{wrong}; the devices of 'line' are gpu0, gpu1, gpu2"):
            replay_lanes(graph, plan_of_stages(graph, *names), times, row)
    with pytest.raises(GraphError, match="1 lists of durations for 2 lanes"):
        replay_lanes(graph, plan_of_stages(graph), times[:1], cluster(2))


@pytest.mark.parametrize("name", ["gpt2", pytest.param("unet", marks=pytest.mark.slow)])
def test_a_captured_step_of_two_stages_is_one_timeline(name: str) -> None:
    graph = stored(name)
    units = units_of(graph, Grouping("closure"))
    times = [[100 + 10 * (op % 7) for op in range(len(graph))]] * 2
    link = Link("wire", Fraction(10**9), 100)
    machine = cluster(2, link)
    run = Simulator(step_of(units, machine, times)).run([2 * unit // len(units) for unit in range(len(units))])
    line = replay_lanes(graph, plan_of(run), times, machine)
    ops = by_kind(line, Kind.RUN)
    assert sorted(op for op, *_ in ops) == [*range(len(graph))]
    assert {lane for _, lane, *_ in by_kind(line, Kind.SEND)} <= {*line.lanes[2:]}
    for name in line.lanes:
        spans = sorted(
            (a, b) for kind in (Kind.RUN, Kind.SEND) for _, lane, a, b in by_kind(line, kind) if lane == name
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert line.makespan_ns >= max(sum(b - a for _, lane, a, b in ops if lane == own) for own in line.lanes[:2])
    assert min(line.peaks_bytes) > 0


def sends(times: list[int], place: list[int]) -> tuple[list[int], list[int]]:
    """What crosses one channel of two devices, in order, as placed steps are simulated and as lanes are played: the
    first ops make a storage each, which takes 100 ns, and as many others read these."""
    builder, count = Builder(), len(times)
    made = [builder.storage(100, Role.ACTIVATION, birth=op, death=op + count + 1) for op in range(count)]
    for storage in made:
        builder.op([], [storage])
    for storage in made:
        builder.op([storage], [builder.storage(8, Role.ACTIVATION, birth=len(builder.ops))])
    graph, links = builder.graph(), tuple(ClusterLink(each.source, each.target, 0) for each in both_ways([(0, 1)]))
    machine = Cluster("shared", cluster(2).devices, links, (Channel(BYTE_PER_NS, False),))
    every = [[*times, *(5 for _ in times)]] * 2
    step = step_of(units_of(graph, Grouping("closure")), machine, every, workspace=False)
    run = Simulator(step).run([*place, *(1 - device for device in place)])
    line = replay_lanes(graph, plan_of(run), every, machine, workspace=False)
    simulated = [step.values.values[value].storage for value in run.sent.tolist()]
    return [made.index(s) for s in simulated], [made.index(s) for s, _, _, _ in by_kind(line, Kind.SEND)]


def test_at_one_moment_the_earlier_op_or_the_first_device_sends_first() -> None:
    """The one rule of placed steps and the one of lanes (docs/architecture.md); nothing else decides between two."""
    assert sends([10, 10], [1, 0]) == ([0, 1], [1, 0])
    assert sends([10, 10], [0, 1]) == ([0, 1], [0, 1])
    assert sends([10, 12], [1, 0]) == ([0, 1], [0, 1])
    assert sends([12, 10], [1, 0]) == ([1, 0], [1, 0])


def test_a_busy_channel_serves_what_was_ready_first_or_the_first_device() -> None:
    """While the first storage of gpu1 crosses, from 10 to 110, another one is ready at 20, and one of gpu0 at 30."""
    assert sends([10, 10, 30], [1, 1, 0]) == ([0, 1, 2], [0, 2, 1])
    assert sends([10, 10, 30], [0, 0, 1]) == ([0, 1, 2], [0, 1, 2])
