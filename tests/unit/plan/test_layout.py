from mnspawn.plan.layout import Layout, Pod, Site, Worker, assign, join_endpoint


def site(host: str, count: int = 2, **options: object) -> Site:
    return Site(host, f"10.0.0.{host[1:]}", "eth0", tuple(range(6070, 6070 + count)), **options)  # type: ignore[arg-type]


def test_ranks_are_dense_and_contiguous_in_the_order_of_the_hosts() -> None:
    layout = assign([site("h3", 1), site("h1", 3), site("h2", 2)], 29500, 29501)
    ranks = [(pod.node_rank, pod.host, [worker.rank for worker in pod.workers]) for pod in layout.pods]
    assert ranks == [(0, "h3", [0]), (1, "h1", [1, 2, 3]), (2, "h2", [4, 5])]
    assert [worker.local_rank for pod in layout.pods for worker in pod.workers] == [0, 0, 1, 2, 0, 1]
    assert layout.world_size == 6


def test_endpoints_are_in_rank_order_and_the_rendezvous_is_on_the_first_host() -> None:
    layout = assign([site("h2"), site("h1")], 29500, 29501)
    assert layout.endpoints == ("10.0.0.2:6070", "10.0.0.2:6071", "10.0.0.1:6070", "10.0.0.1:6071")
    assert layout.rendezvous == ("10.0.0.2", 29500)
    assert layout.coordinator_port == 29501


def test_ipv6_addresses_stand_in_brackets() -> None:
    assert join_endpoint("fd00::7", 6070) == "[fd00::7]:6070"
    assert join_endpoint("10.0.0.1", 6070) == "10.0.0.1:6070"
    assert join_endpoint("gpu-1.example", 6070) == "gpu-1.example:6070"
    assert assign([Site("a", "fd00::7", "eth0", (6070,))], 1, 2).endpoints == ("[fd00::7]:6070",)


def test_each_worker_gets_one_device_in_the_order_the_host_names_them() -> None:
    layout = assign([site("h1", devices=(2, 3, 5), device_kind="gpu")], 1, 2)
    assert [worker.devices for worker in layout.pods[0].workers] == [(2,), (3,)]
    assert layout.pods[0].device_kind == "gpu"


def test_a_pod_with_fewer_devices_than_workers_uses_none() -> None:
    layout = assign([site("h1", devices=(0,), device_kind="gpu"), site("h2", devices=(0, 1), device_kind="gpu")], 1, 2)
    assert [(pod.device_kind, [t.devices for t in pod.workers]) for pod in layout.pods] == [
        ("cpu", [(), ()]),
        ("gpu", [(0,), (1,)]),
    ]


def test_a_layout_is_a_value() -> None:
    pod = Pod(0, "h1", "10.0.0.1", "eth0", "cpu", False, (Worker(0, 0, "10.0.0.1:6070", ()),))
    assert assign([site("h1", 1)], 29500, 29501) == Layout((pod,), ("10.0.0.1", 29500), 29501)
