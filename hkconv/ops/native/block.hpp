// A block of edges, one in each lane: their relative features, distances to kernel points and shares, and the way back
// to their two ends. Written out on the hyperboloid of curvature -1. With a source u and a target x an edge needs
//
//   h_k  = (W_s z + b)/t' + w_t,   [t', z] = u - x = [1 + delta, u_s - c x_s]
//   nu_k = arcosh(1 + t' p_t/2 (|z/t' - p_s/p_t|^2 + (1/t' - 1/p_t)^2))
//   m    = HCent({l_k h_k/|h_k|}_k, nu),   l_k = lambda_k sigma(v_k . z + b'_k).
//
// The direction h_k has no scale, so it is taken in units of t', and the excess between z and a kernel point is written
// in their Klein coordinates; both stay finite and accurate for all points that can be represented.
#pragma once

#include "lanes.hpp"
#include "threads.hpp"

namespace hkconv {

// Ratio of the square of a sum's time to its Lorentz square from which on a difference would lose that much precision.
constexpr int CANCELS = 32;

// Up to this time of both ends float32 is enough for u - x; farther out its squares cancel, and double precision is taken.
constexpr double NEAR = 8;

// Times and squared lengths of points from their space, in double precision.
template <class T> inline double time_of(const T *point, int64_t m) {
    double square = 1;
    for (int64_t i = 1; i <= m; i++) square += double(point[i]) * double(point[i]);
    return std::sqrt(square);
}

template <class T> void fill_times(const T *points, int64_t count, int64_t m, int64_t threads, double *times) {
    constexpr int64_t ROWS = 4096;
    in_threads(threads, (count + ROWS - 1) / ROWS, [&](int64_t part) {
        for (int64_t i = part * ROWS; i < std::min(count, (part + 1) * ROWS); i++) times[i] = time_of(points + i * (m + 1), m);
    });
}

// What the edges of a graph read, for S sources, T targets and K kernel points. Edges are sorted by target.
template <class T> struct Ends {
    const T *source, *target; // (S|T, m+1), of which only the space is read
    const double *source_time, *target_time;
    const int32_t *pointer, *other;
    const T *weight; // (E,) or null
    int64_t m;
};

template <class D> struct Boost { // of the relative features
    static constexpr int B = LANES<float>;
    alignas(64) D delta[B], c_minus_1[B], source_time[B], target_time[B], gap[B];
};

template <class T> struct Block {
    static constexpr int B = LANES<T>;
    using V = Vector<T>;
    int64_t m, K;
    int count = 0;
    bool far = false;
    int64_t source[B], target[B];
    Array<T> u, x, klein;                                                  // (m, B)
    Array<T> gate, square, nearness, share, slope, opening, length, time, ratio; // (K, B); nearness: squared Klein distance
    Array<T> dot, by_share, excess, by_length, by_gate, along_message, along_direction; // (K, B)
    Array<T> feature, to_source, to_target;                                // (m, B)
    Array<T> rows;                                                         // (B, m rounded up)
    V inverse_time, total, weight, message_time, mass, by_time;
    Boost<T> near_boost;
    Boost<double> far_boost;

    Block(int64_t m, int64_t K)
        : m(m), K(K), u(m * B), x(m * B), klein(m * B), gate(K * B), square(K * B), nearness(K * B), share(K * B),
          slope(K * B), opening(K * B), length(K * B), time(K * B), ratio(K * B), dot(K * B), by_share(K * B),
          excess(K * B), by_length(K * B), by_gate(K * B), along_message(K * B), along_direction(K * B), feature(m * B),
          to_source(m * B), to_target(m * B), rows(B * rounded_up(m, B)) {}

    V get(const T *array, int64_t k) const { return load<V>(array + k * B); }
    void put(T *array, int64_t k, V value) { store(array + k * B, value); }
};

// Take the edges from `start` to `start + count`, whose first one leads to `node` or a later target; lanes that are left
// repeat the last edge with the weight 0. Returns the target of the last one.
template <class T> inline int64_t take(const Ends<T> &ends, int64_t node, int64_t start, int64_t end, Block<T> &block) {
    constexpr int B = LANES<T>;
    int64_t m = ends.m;
    block.count = static_cast<int>(std::min<int64_t>(B, end - start));
    const T *sources[B], *targets[B];
    T weight[B];
    double largest = 0;
    for (int lane = 0; lane < B; lane++) {
        int64_t e = start + std::min(lane, block.count - 1);
        while (e >= ends.pointer[node + 1]) node++;
        int64_t u = ends.other[e];
        block.source[lane] = u, block.target[lane] = node;
        sources[lane] = ends.source + u * (m + 1) + 1, targets[lane] = ends.target + node * (m + 1) + 1;
        weight[lane] = lane >= block.count ? T(0) : ends.weight ? ends.weight[e] : T(1);
        double u_time = ends.source_time[u], x_time = ends.target_time[node];
        block.far_boost.source_time[lane] = u_time, block.far_boost.target_time[lane] = x_time;
        block.near_boost.source_time[lane] = static_cast<T>(u_time), block.near_boost.target_time[lane] = static_cast<T>(x_time);
        largest = !(u_time <= largest) ? u_time : largest;
        largest = !(x_time <= largest) ? x_time : largest;
    }
    block.far = sizeof(T) == 4 && !(largest < NEAR);
    block.weight = load<Vector<T>>(weight);
    rows_to_columns(sources, static_cast<int>(m), static_cast<T *>(block.u));
    if (block.target[0] == block.target[B - 1]) {
        for (int64_t j = 0; j < m; j++) block.put(block.x, j, all(targets[0][j]));
    } else {
        rows_to_columns(targets, static_cast<int>(m), static_cast<T *>(block.x));
    }
    return node;
}

// Fill one part of the lanes with u - x: with s the shorter and o the other end, e = s - o and f = s.e,
// delta = |e|^2 (1 + |s - (f/|e|^2) e|^2)/(1 + u_t x_t + u.x), where u.x = |s|^2 - f > -1, else u_t x_t - u.x - 1, and
// |s|^2 - |o|^2 = 2 f - |e|^2.
template <class T, class D> inline void relate_lanes(const T *us, const T *xs, int64_t m, int lane, Boost<D> &boost, T *klein) {
    using V = Vector<D>;
    constexpr int B = LANES<T>;
    V u_time = load<V>(boost.source_time + lane), x_time = load<V>(boost.target_time + lane);
    auto shorter_is_u = u_time < x_time;
    V square = all(D(0)), along = all(D(0));
    for (int64_t i = 0; i < m; i++) {
        V u = load_as<D>(us + i * B + lane), x = load_as<D>(xs + i * B + lane);
        V s = shorter_is_u ? u : x, gap = u - x;
        gap = shorter_is_u ? gap : -gap;
        square += gap * gap;
        along += s * gap;
    }
    V shorter_time = shorter_is_u ? u_time : x_time;
    V product = (shorter_time - D(1)) * (shorter_time + D(1)) - along;
    auto together = square == D(0);
    V part = along / (together ? all(D(1)) : square);
    V across = all(D(0));
    for (int64_t i = 0; i < m; i++) {
        V u = load_as<D>(us + i * B + lane), x = load_as<D>(xs + i * B + lane);
        V s = shorter_is_u ? u : x, gap = u - x;
        gap = shorter_is_u ? gap : -gap;
        V rest = s - part * gap;
        across += rest * rest;
    }
    V facing = square / (D(1) + u_time * x_time + product) * (D(1) + across);
    V delta = product > D(-1) ? facing : u_time * x_time - product - D(1);
    delta = together ? all(D(0)) : delta;
    V time_gap = (D(2) * along - square) / (u_time + x_time);
    time_gap = shorter_is_u ? time_gap : -time_gap;
    V c_minus_1 = (time_gap + delta) / (D(1) + x_time);
    V inverse_time = D(1) / (D(1) + delta);
    for (int64_t i = 0; i < m; i++) {
        V u = load_as<D>(us + i * B + lane), x = load_as<D>(xs + i * B + lane);
        store_as<D>(klein + i * B + lane, ((u - x) - c_minus_1 * x) * inverse_time);
    }
    store(boost.delta + lane, delta), store(boost.c_minus_1 + lane, c_minus_1), store(boost.gap + lane, time_gap);
}

template <class T, class D> inline void relate(Block<T> &block, Boost<D> &boost) {
    alignas(64) T inverse[LANES<T>];
    for (int lane = 0; lane < LANES<T>; lane += LANES<D>) {
        relate_lanes<T, D>(block.u, block.x, block.m, lane, boost, block.klein);
        store_as<D>(inverse + lane, D(1) / (D(1) + load<Vector<D>>(boost.delta + lane)));
    }
    block.inverse_time = load<Vector<T>>(inverse);
}

template <class T> inline void relate(Block<T> &block) {
    if constexpr (sizeof(T) == 4) {
        if (block.far) return relate(block, block.far_boost);
    }
    relate(block, block.near_boost);
}

// Kernel points in Klein coordinates (K, m), their times and the inverses of these.
template <class T> struct KernelPoints {
    Array<T> klein, time;
    KernelPoints(const T *points, int64_t K, int64_t m) : klein(K * m), time(K) {
        for (int64_t k = 0; k < K; k++) {
            T exact = static_cast<T>(time_of(points + k * (m + 1), m));
            time[k] = exact;
            for (int64_t i = 0; i < m; i++) klein[k * m + i] = points[k * (m + 1) + 1 + i] / exact;
        }
    }
};

// Distances nu, lengths l, their times, and l/|h|, given |h|^2 and the gates.
template <class T> inline void evaluate(const KernelPoints<T> &points, const T *scale, Block<T> &block) {
    using V = Vector<T>;
    const V zero = all(T(0)), one = all(T(1)), reach = one / block.inverse_time;
    V total = zero;
    for (int64_t k = 0; k < block.K; k++) {
        V near = zero;
        for (int64_t i = 0; i < block.m; i++) {
            V gap = block.get(block.klein, i) - points.klein[k * block.m + i];
            near += gap * gap;
        }
        T time = points.time[k];
        V gap = block.inverse_time - T(1) / time;
        V delta = (near + gap * gap) * (T(0.5) * time * reach);
        V sinh = root(delta) * root(delta + T(2));
        V distance = log1p<T>(delta + sinh);
        total += distance;
        V opening = one / (one + exponential<T>(-block.get(block.gate, k)));
        V norm = root(block.get(block.square, k));
        auto directed = norm > zero;
        V length = directed ? scale[k] * opening : zero;
        block.put(block.share, k, distance);
        block.put(block.slope, k, sinh > zero ? time / sinh : zero);
        block.put(block.opening, k, opening);
        block.put(block.length, k, length);
        block.put(block.time, k, root(one + length * length));
        block.put(block.ratio, k, directed ? length / norm : zero);
    }
    block.total = total;
    V message_time = zero, inverse_total = one / total;
    for (int64_t k = 0; k < block.K; k++) {
        V share = total > zero ? block.get(block.share, k) * inverse_total : one / T(block.K);
        block.put(block.share, k, share);
        message_time += share * block.get(block.time, k);
    }
    block.message_time = message_time;
}

// Gradients of shares, lengths, gates and directions, given the products of the messages' gradients with h.
template <class T> inline void differentiate(const KernelPoints<T> &points, Block<T> &block) {
    using V = Vector<T>;
    const V zero = all(T(0)), one = all(T(1));
    V mean = zero;
    for (int64_t k = 0; k < block.K; k++) {
        V square = block.get(block.square, k), length = block.get(block.length, k), share = block.get(block.share, k);
        V time = block.get(block.time, k), dot = block.get(block.dot, k);
        auto directed = square > zero;
        square = directed ? square : one; // h = 0 has length 0, and its gradient vanishes
        V slope = dot / root(square);
        V by_share = block.by_time * time + length * slope;
        slope = share * (slope + block.by_time * length / time);
        V by_length = directed ? slope : zero;
        V along = share * block.get(block.ratio, k);
        block.put(block.by_share, k, by_share);
        block.put(block.by_length, k, by_length);
        block.put(block.by_gate, k, slope * length * (one - block.get(block.opening, k)));
        block.put(block.along_message, k, along);
        block.put(block.along_direction, k, along * dot / square);
        mean += share * by_share;
    }
    V inverse = block.total > zero ? one / block.total : zero;
    for (int64_t k = 0; k < block.K; k++)
        block.put(block.excess, k, (block.get(block.by_share, k) - mean) * inverse * block.get(block.slope, k));
    for (int64_t i = 0; i < block.m; i++) {
        V klein = block.get(block.klein, i), feature = zero;
        for (int64_t k = 0; k < block.K; k++) feature += block.get(block.excess, k) * (klein - points.klein[k * block.m + i]);
        block.put(block.feature, i, feature);
    }
}

// From the gradients of z (`feature`), of c and of t' to those of the two ends. The derivative of delta by u_s is
// (u_s - x_s) - (u_t - x_t) u_s/u_t, that of u_t is u_s/u_t: written so that nothing large cancels.
template <class T, class D> inline void to_ends(const T *by_stretch, const T *by_time, const Boost<D> &boost, Block<T> &block) {
    using V = Vector<D>;
    constexpr int B = LANES<T>;
    for (int lane = 0; lane < B; lane += LANES<D>) {
        V stretch_grad = load_as<D>(by_stretch + lane), time_grad = load_as<D>(by_time + lane);
        for (int64_t i = 0; i < block.m; i++)
            stretch_grad -= load_as<D>(block.feature + i * B + lane) * load_as<D>(block.x + i * B + lane);
        V u_time = load<V>(boost.source_time + lane), x_time = load<V>(boost.target_time + lane);
        V gap = load<V>(boost.gap + lane), c_minus_1 = load<V>(boost.c_minus_1 + lane);
        V by_gap = stretch_grad / (D(1) + x_time);
        V by_delta = time_grad + by_gap;
        V of_source = (by_gap - by_delta * gap) / u_time;
        V of_target = (by_delta * gap - by_gap - by_gap * c_minus_1) / x_time;
        V stretch = D(1) + c_minus_1;
        for (int64_t i = 0; i < block.m; i++) {
            V feature = load_as<D>(block.feature + i * B + lane);
            V u = load_as<D>(block.u + i * B + lane), x = load_as<D>(block.x + i * B + lane);
            V apart = by_delta * (u - x);
            store_as<D>(block.to_source + i * B + lane, feature + of_source * u + apart);
            store_as<D>(block.to_target + i * B + lane, of_target * x - stretch * feature - apart);
        }
    }
}

template <class T> inline void add_row(T *to, const T *row, int64_t width) {
    int64_t j = 0;
    for (; j + LANES<T> <= width; j += LANES<T>) store(to + j, load<Vector<T>>(to + j) + load<Vector<T>>(row + j));
    for (; j < width; j++) to[j] += row[j];
}

// `copies` has the gradients of all sources for each of `parts` threads; their sum goes into the first.
template <class T> void add_copies(T *copies, int64_t parts, int64_t size, int64_t threads) {
    constexpr int64_t NUMBERS = 1 << 14;
    in_threads(threads, (size + NUMBERS - 1) / NUMBERS, [&](int64_t piece) {
        int64_t start = piece * NUMBERS, count = std::min(size - start, NUMBERS);
        for (int64_t part = 1; part < parts; part++) add_row(copies + start, copies + part * size + start, count);
    });
}

// Add the gradients of both ends to those of their nodes (S|T, m+1).
template <class T> inline void add_ends(Block<T> &block, T *source, T *target) {
    int stride = rounded_up(static_cast<int>(block.m), LANES<T>);
    columns_to_rows(static_cast<const T *>(block.to_source), static_cast<int>(block.m), static_cast<T *>(block.rows), stride);
    for (int lane = 0; lane < block.count; lane++)
        add_row(source + block.source[lane] * (block.m + 1) + 1, block.rows + lane * stride, block.m);
    columns_to_rows(static_cast<const T *>(block.to_target), static_cast<int>(block.m), static_cast<T *>(block.rows), stride);
    for (int lane = 0; lane < block.count; lane++)
        add_row(target + block.target[lane] * (block.m + 1) + 1, block.rows + lane * stride, block.m);
}

// The weighted sum of points that lie on the hyperboloid, given by their space.
//
// Its Lorentz square is r (2 f + r) + f^2 - |s|^2 with f = sum w l and r = sum w (t - l) = sum w/(t + l), for lengths l
// and times t. Of float32 points the difference is taken in double precision: what it loses is less than what rounding the
// points has lost. Of double ones it grows by f g/(f + g) |d - d'|^2 where a point of weighted length g and direction d'
// joins others of direction d.
template <class T> struct Total {
    int64_t n;
    Array<double> space;
    double far = 0, rest = 0, spread = 0, weight = 0;
    explicit Total(int64_t n) : n(n), space(n) {}

    void clear() {
        std::fill(space + 0, space + n, 0.0);
        far = rest = spread = weight = 0;
    }

    void join(double w, const T *point) {
        Sum<double> squares;
        columns(point, [&](int64_t, auto value) { squares.add(value * value); });
        double square = squares.total();
        double length = std::sqrt(square), more = w * length;
        if constexpr (sizeof(T) == 8) {
            if (far > 0 && more > 0) {
                double to_mean = 1 / far, to_unit = 1 / length;
                Sum<double> away;
                columns(point, [&](int64_t j, auto value) {
                    auto gap = to_unit * value - to_mean * load<decltype(value)>(space + j);
                    away.add(gap * gap);
                });
                spread += far / (far + more) * more * away.total();
            }
        }
        weight += w, far += more, rest += w / (std::sqrt(1 + square) + length);
        columns(point, [&](int64_t j, auto value) { store(space + j, load<decltype(value)>(space + j) + w * value); });
    }

    // Call body(j, values) with the coordinates of a point from j on in double precision.
    template <class Body> void columns(const T *point, Body body) const {
        constexpr int L = LANES<double>;
        int64_t j = 0;
        for (; j + L <= n; j += L) body(j, load_as<double>(point + j));
        for (; j < n; j++) body(j, double(point[j]));
    }

    // The centroid, time first, and its mass; the origin, with unit mass, of nothing.
    void project(bool empty, T *out, T *mass) const {
        double between = far * spread;
        if constexpr (sizeof(T) == 4) {
            double square = 0;
            for (int64_t j = 0; j < n; j++) square += space[j] * space[j];
            between = far * far - square;
            between = between < 0 ? 0 : between;
        }
        double norm = empty ? 1 : std::sqrt(rest * (far + far + rest) + between), square = 1;
        *mass = static_cast<T>(empty ? 1 : norm / weight);
        for (int64_t j = 0; j < n; j++) {
            double value = space[j] / norm;
            out[1 + j] = static_cast<T>(value);
            square += value * value;
        }
        out[0] = static_cast<T>(std::sqrt(square));
    }
};

// The outputs and their gradients, from which a backward pass starts, and what it leaves for the edges of a target.
template <class T> struct Given {
    const T *out, *mass, *grad_out, *grad_mass; // the last may be null
    int64_t n;
};

// From gradients of the aggregated points to those of their weighted means (T, n+1), and what those of the weights have in
// common: mean = mass out and out = mean/mass, mass^2 = mean_t^2 - |mean_s|^2; each divided by the sum of the weights.
template <class T>
void spread(const Given<T> &given, const int32_t *pointer, const T *weight, int64_t first, int64_t last, T *grad_mean, T *grad_weight) {
    int64_t n = given.n;
    for (int64_t x = first; x < last; x++) {
        double total = pointer[x + 1] - pointer[x];
        if (weight) {
            total = 0;
            for (int64_t e = pointer[x]; e < pointer[x + 1]; e++) total += weight[e];
        }
        double scale = total > 0 ? 1 / total : 0;
        const T *out = given.out + x * (n + 1), *grad = given.grad_out + x * (n + 1);
        T *mean = grad_mean + x * (n + 1);
        double time = out[0], mass = given.mass[x], by_time = grad[0] / time, along = 0;
        for (int64_t j = 1; j <= n; j++) along += out[j] * (grad[j] + by_time * out[j]);
        double by_mass = (given.grad_mass ? given.grad_mass[x] : T(0)) - along / mass;
        mean[0] = static_cast<T>(scale * by_mass * time);
        for (int64_t j = 1; j <= n; j++)
            mean[j] = static_cast<T>(scale * ((grad[j] + by_time * out[j]) / mass - by_mass * out[j]));
        if (grad_weight) {
            T level = static_cast<T>(-scale * (by_mass * mass + along));
            for (int64_t e = pointer[x]; e < pointer[x + 1]; e++) grad_weight[e] = level;
        }
    }
}

} // namespace hkconv
