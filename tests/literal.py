"""HKConv as the paper writes it: log, transport, exp, one neighbour at a time, in float64, corrected by the errata.

Nothing here is shared with the package, so that the two can disagree.
"""

import math

import torch


def inner(x, y):
    return -x[0] * y[0] + x[1:] @ y[1:]


def lift(s, k):
    return torch.cat([torch.sqrt(s @ s - 1 / k).reshape(1), s])


def origin(n, k):
    return lift(torch.zeros(n, dtype=torch.float64), k)


def dist(x, y, k):
    if torch.allclose(x, y, rtol=1e-13, atol=1e-13):  # arcosh of 1 + rounding would be 1e-8
        return torch.zeros((), dtype=torch.float64)
    return torch.acosh((k * inner(x, y)).clamp(min=1)) / math.sqrt(-k)


def log(x, u, k):
    psi = k * inner(x, u)
    v = u - psi * x
    length = torch.sqrt(inner(v, v).clamp(min=0))
    if length < 1e-12:
        return torch.zeros_like(x)
    return torch.acosh(psi.clamp(min=1)) / math.sqrt(-k) * v / length


def transport(x, y, v, k):
    return v + inner(y, v) / (-1 / k - inner(x, y)) * (x + y)


def exp(x, v, k):
    phi = math.sqrt(-k) * torch.sqrt(inner(v, v).clamp(min=0))
    if phi == 0:
        return x
    return torch.cosh(phi) * x + torch.sinh(phi) / phi * v


def translate(x, y, u, k):
    return exp(y, transport(x, y, log(x, u, k), k), k)


def centroid(points, weights, k):
    weights = torch.stack([torch.as_tensor(w, dtype=torch.float64) for w in weights])
    if (weights == 0).all():
        weights = torch.ones_like(weights)
    s = (weights[:, None] * torch.stack(points)).sum(0)
    return s / (math.sqrt(-k) * torch.sqrt(-inner(s, s)))


def hlinear(x, weight, bias, gate_weight, gate_bias, log_scale, k, act=lambda t: t):
    y = weight @ act(x) + bias
    h = torch.exp(log_scale) * torch.sigmoid(gate_weight @ x + gate_bias) * y / torch.linalg.norm(y)
    return lift(h, k)


def hkconv(x_source, x_target, edges, weights, linear, points, k, act=lambda t: t, relative=True, moves=None):
    """Outputs for all targets. ``edges``: list of (source, target); ``linear``: dict of stacked parameters.

    ``moves``: what the attributes of each edge add to the space of its feature; None for nothing.
    """
    neighbours = [[] for _ in x_target]
    for number, ((source, target), weight) in enumerate(zip(edges, weights)):
        move = torch.zeros(len(x_source[source]) - 1) if moves is None else moves[number]
        neighbours[target].append((x_source[source], weight, move))
    n = linear["weight"].shape[1]
    return torch.stack([_one(x, found, linear, points, k, act, relative, n) for x, found in zip(x_target, neighbours)])


def _one(x, neighbours, linear, points, k, act, relative, n):
    o = origin(len(x) - 1, k)
    if not neighbours:
        return origin(n, k)
    messages = []
    for u, _, move in neighbours:
        if relative:
            z = lift(translate(x, o, u, k)[1:] + move, k)
            feature, correlation = z, [dist(z, p, k) for p in points]
        else:
            u = lift(u[1:] + move, k)
            feature, correlation = u, [dist(u, translate(o, x, p, k), k) for p in points]
        maps = [{name: value[i] for name, value in linear.items()} for i in range(len(points))]
        messages.append(centroid([hlinear(feature, **m, k=k, act=act) for m in maps], correlation, k))
    return centroid(messages, [w for _, w, _ in neighbours], k)


def hkblock_views(x_source, x_target, edges, weights, conv, points, linear, k, moves=None, others=None):
    """The views d, a and s of all targets, ``(T, 3, n+1)``. ``conv``, ``linear``: dicts of stacked parameters.

    ``moves``, ``others``: what the attributes of each edge add to differences and to neighbours; None for nothing.
    """
    differences = hkconv(x_source, x_target, edges, weights, conv, points, k, moves=moves)
    of_neighbours, of_node = ({name: value[c] for name, value in linear.items()} for c in (0, 1))
    views = []
    near = [x_source[s] if others is None else lift(x_source[s][1:] + others[e], k) for e, (s, _) in enumerate(edges)]
    for i, x in enumerate(x_target):
        found = [(hlinear(u, **of_neighbours, k=k), w) for u, (_, t), w in zip(near, edges, weights) if t == i]
        a = centroid([p for p, _ in found], [w for _, w in found], k) if found else origin(len(of_node["bias"]), k)
        views.append(torch.stack([differences[i], a, hlinear(x, **of_node, k=k)]))
    return torch.stack(views)


def hkblock_gates(views, v, G):
    """The weights g of the three views of one node."""
    opened = [1 / (1 + math.exp(-float(v[c] @ views[c]))) for c in range(3)]
    mixed = [sum(opened[b] * (float(b == c) + float(G[b, c])) for b in range(3)) for c in range(3)]
    total = sum(math.exp(3 * m) for m in mixed)
    return [math.exp(3 * m) / total for m in mixed]


def standardised(rows, scale, shift):
    """Each row by its own mean and variance, then scaled and shifted column by column."""
    out = []
    for row in rows:
        mean = sum(row) / len(row)
        variance = sum((r - mean) ** 2 for r in row) / len(row)
        out.append(torch.stack([(r - mean) / torch.sqrt(variance + 1e-5) for r in row]))
    return scale * torch.stack(out) + shift


def hkblock(views, v, G, k, norm=None, scale=None, shift=None, act=lambda t: t):
    """What a block makes of its views: ``norm`` is None, ``"layer"`` or ``"batch"``, the latter as in training."""
    space = torch.stack([centroid(list(y), hkblock_gates(y, v, G), k)[1:] for y in views])
    if norm == "layer":
        space = standardised(space, scale, shift)
    if norm == "batch":
        space = standardised(space.t(), scale[:, None], shift[:, None]).t()
    return torch.stack([lift(act(h), k) for h in space])
