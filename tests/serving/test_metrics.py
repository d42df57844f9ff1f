from hkconv.serving.metrics import Metrics


def values(text):
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


def test_requests_are_counted_by_path_and_status():
    metrics = Metrics()
    for path, status, seconds in (("/a", 200, 0.001), ("/a", 200, 0.02), ("/a", 422, 3), ("/b", 200, 60)):
        metrics.add_request(path, status, seconds)
    found = values(metrics.text())
    assert found['hkconv_requests_total{path="/a",status="200"}'] == 2
    assert found['hkconv_requests_total{path="/a",status="422"}'] == 1
    # Buckets hold all that took at most so long, their own end included.
    bounds = ("0.005", "0.02", "0.1", "0.5", "2.0", "10.0", "+Inf")
    counts = [found[f'hkconv_request_seconds_bucket{{path="/a",le="{bound}"}}'] for bound in bounds]
    assert counts == [1, 2, 2, 2, 2, 3, 3]
    assert found['hkconv_request_seconds_sum{path="/a"}'] == 3.021
    assert found['hkconv_request_seconds_count{path="/a"}'] == 3
    assert found['hkconv_request_seconds_bucket{path="/b",le="10.0"}'] == 0
    assert found['hkconv_request_seconds_bucket{path="/b",le="+Inf"}'] == 1


def test_each_metric_says_its_type_once_and_before_its_values():
    metrics = Metrics()
    metrics.in_progress, metrics.predictions = 2, 7
    metrics.add_request("/a", 200, 1)
    text = metrics.text()
    assert text.endswith("\n") and values(text)["hkconv_requests_in_progress"] == 2
    assert values(text)["hkconv_predictions_total"] == 7
    seen = []
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            seen.append(line.split()[2])
        elif not line.startswith("#"):
            assert line.startswith(seen[-1])
    assert len(seen) == len(set(seen)) == 4
