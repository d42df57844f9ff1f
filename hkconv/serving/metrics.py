"""What a server has done so far, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Upper ends in seconds; the last bucket, without an end, is counted too.
BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class Metrics:
    """Counters of one server, written by its event loop alone.

    ``in_progress`` is the number of requests that are not answered yet, ``predictions`` that of nodes and graphs that
    were told their class.
    """

    def __init__(self) -> None:
        self.in_progress = 0
        self.predictions = 0
        self._requests: Counter[tuple[str, int]] = Counter()
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that ended.

        Args:
            path: one of the server's own, so that clients cannot make up series.
            status: of the response.
            seconds: from its first byte here to the last one sent.
        """
        self._requests[path, status] += 1
        self._counts[path][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[path] += seconds

    def text(self) -> str:
        """All counters."""
        lines = [
            "# HELP hkconv_requests_total Requests answered, by path and status.",
            "# TYPE hkconv_requests_total counter",
            *(
                f'hkconv_requests_total{{path="{path}",status="{status}"}} {number}'
                for (path, status), number in sorted(self._requests.items())
            ),
            "# HELP hkconv_request_seconds Time to answer a request, by path.",
            "# TYPE hkconv_request_seconds histogram",
            *(line for path in sorted(self._counts) for line in self._histogram(path)),
            "# HELP hkconv_requests_in_progress Requests that are not answered yet, this one included.",
            "# TYPE hkconv_requests_in_progress gauge",
            f"hkconv_requests_in_progress {self.in_progress}",
            "# HELP hkconv_predictions_total Nodes and graphs that were predicted.",
            "# TYPE hkconv_predictions_total counter",
            f"hkconv_predictions_total {self.predictions}",
        ]
        return "\n".join(lines) + "\n"

    def _histogram(self, path: str) -> list[str]:
        reached = list(accumulate(self._counts[path]))
        ends = [*map(str, BUCKETS), "+Inf"]
        name = "hkconv_request_seconds"
        buckets = [f'{name}_bucket{{path="{path}",le="{end}"}} {count}' for end, count in zip(ends, reached)]
        return [
            *buckets,
            f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}',
            f'{name}_count{{path="{path}"}} {reached[-1]}',
        ]
