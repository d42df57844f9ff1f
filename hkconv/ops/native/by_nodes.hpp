// HLinear of edges by products of their nodes, W (u - x) = W_s u_s - c W_s x_s + t' w_t: for wide maps an edge then needs a
// gather and a few multiply-adds. Coordinates are lanes here, in the rows of an edge, and edges are where K numbers of each
// are computed.
#pragma once

#include "block.hpp"

namespace hkconv {

template <class T> inline T dot(const T *a, const T *b, int64_t n) {
    Sum<T> sum;
    for_columns<T>(n, [&](int64_t j, auto like) { sum.add(load<decltype(like)>(a + j) * load<decltype(like)>(b + j)); });
    return sum.total();
}

// A row of products holds the K directions one after the other, then the K gates, `width` numbers with what is left unused.
template <class T> struct Products {
    const T *source, *target; // W_s u_s and W_s x_s; W u and null where maps see neighbors themselves
    const T *bias, *time, *scale;
    int64_t K, n, width;
};

template <class T> struct NodeMaps {
    static constexpr int B = LANES<T>;
    using V = Vector<T>;
    const Products<T> &products;
    const KernelPoints<T> &points;
    Block<T> block;
    int64_t K, n, length;
    Array<T> direction, message, grad, by_stretch, by_time, recent_time;
    Array<double> time_total, scale_total, points_total;
    bool points_too;
    T mass[B], message_time[B];
    int blocks = 0;

    NodeMaps(const Products<T> &products, const KernelPoints<T> &points, int64_t m, bool points_too = false)
        : products(products), points(points), block(m, products.K), K(products.K), n(products.n), length(K * n),
          direction(B * length), message(B * n), grad(B * n), by_stretch(B), by_time(B), recent_time(length + K), time_total(length + K),
          scale_total(K), points_total(points_too ? K * m : 0), points_too(points_too) {}

    // Begin to fetch a row of products, which are far away and in no order.
    void prefetch(const T *rows, int64_t node) const {
        auto *begin = reinterpret_cast<const char *>(rows + node * products.width);
        for (int64_t at = 0; at < products.width * int64_t(sizeof(T)); at += 64) __builtin_prefetch(begin + at, 0, 2);
    }

    T *row(int lane, int64_t k) const { return direction + lane * length + k * n; }

    // Directions, shares, and the messages with their times and masses. What the next block, from the edge `next` on, and the
    // backward pass of this one will read is fetched meanwhile.
    void forward(const Ends<T> &ends, int64_t next, int64_t end, const T *source_product = nullptr) {
        relate(block);
        for (int lane = 0; lane < block.count; lane++) {
            if (next + lane < end) prefetch(products.source, ends.other[next + lane]);
            if (source_product) prefetch(source_product, block.source[lane]);
            if (products.target) relative_row(lane);
            else own_row(lane);
        }
        evaluate(points, products.scale, block);
        for (int lane = 0; lane < block.count; lane++) average(lane);
    }

    // P_u - c P_x = (P_u - q P_x) - (c - q) P_x, where q = 1 if that is nearer to c than 0: far out P_u and P_x are large and,
    // for neighbors, nearly equal. Those of x itself are equal: x - x = o.
    void relative_row(int lane) {
        double delta = block.far ? block.far_boost.delta[lane] : block.near_boost.delta[lane];
        double c_minus_1 = block.far ? block.far_boost.c_minus_1[lane] : block.near_boost.c_minus_1[lane];
        const T *__restrict pu = products.source + block.source[lane] * products.width;
        const T *__restrict px = products.target + block.target[lane] * products.width;
        const T *__restrict bias = products.bias, *__restrict time = products.time;
        if (delta == 0) {
            for (int64_t k = 0; k < K; k++) {
                T *h = row(lane, k);
                for (int64_t j = 0; j < n; j++) h[j] = bias[k * n + j] + time[k * n + j];
                block.square[k * B + lane] = dot(h, h, n), block.gate[k * B + lane] = bias[length + k] + time[length + k];
            }
            return;
        }
        double held = c_minus_1 > -0.5 ? 1 : 0, rest = 1 + c_minus_1 - held, unit = 1 / (1 + delta);
        T q = T(held), c = T(rest), a = T(unit), ac = T(rest * unit), reach = T(1 + delta);
        for (int64_t k = 0; k < K; k++) {
            T *h = row(lane, k);
            Sum<T> square;
            for_columns<T>(n, [&](int64_t j, auto like) {
                using W = decltype(like);
                int64_t at = k * n + j;
                W p = load<W>(px + at);
                W value = a * ((load<W>(pu + at) - q * p) + load<W>(bias + at)) + (load<W>(time + at) - ac * p);
                store(h + j, value), square.add(value * value);
            });
            block.square[k * B + lane] = square.total();
            T gap = pu[length + k] - q * px[length + k];
            block.gate[k * B + lane] = (gap + bias[length + k]) + (reach * time[length + k] - c * px[length + k]);
        }
    }

    void own_row(int lane) {
        T inverse = T(1 / block.far_boost.source_time[lane]);
        const T *__restrict pu = products.source + block.source[lane] * products.width, *__restrict bias = products.bias;
        for (int64_t k = 0; k < K; k++) {
            T *h = row(lane, k);
            for (int64_t j = 0; j < n; j++) h[j] = inverse * (pu[k * n + j] + bias[k * n + j]);
            block.square[k * B + lane] = dot(h, h, n), block.gate[k * B + lane] = pu[length + k] + bias[length + k];
        }
    }

    // The message of a lane: the centroid over the kernel points.
    void average(int lane) {
        T *out = message + lane * n, time = block.message_time[lane];
        const T *h = row(lane, 0);
        Sum<T> sum;
        for_columns<T>(n, [&](int64_t j, auto like) {
            auto mean = like;
            for (int64_t k = 0; k < K; k++)
                mean += block.share[k * B + lane] * block.ratio[k * B + lane] * load<decltype(like)>(h + k * n + j);
            store(out + j, mean), sum.add(mean * mean);
        });
        T square = sum.total();
        T mass_square = time * time - square;
        if (CANCELS * mass_square < time * time) mass_square = square_of_far_sum(lane);
        T norm = std::sqrt(mass_square), inverse = 1 / norm;
        for (int64_t j = 0; j < n; j++) out[j] *= inverse;
        mass[lane] = norm;
        message_time[lane] = std::sqrt(1 + square * inverse * inverse);
    }

    // As in by_edges.hpp.
    T square_of_far_sum(int lane) const {
        const T *mean = message + lane * n;
        T far = 0, rest = 0, spread = 0;
        for (int64_t k = 0; k < K; k++) {
            T share = block.share[k * B + lane], reach = block.length[k * B + lane];
            far += share * reach, rest += share / (block.time[k * B + lane] + reach);
        }
        T to_mean = far > 0 ? 1 / far : 0;
        for (int64_t k = 0; k < K; k++) {
            T reach = block.length[k * B + lane], to_unit = reach > 0 ? block.ratio[k * B + lane] / reach : 0, away = 0;
            const T *h = row(lane, k);
            for (int64_t j = 0; j < n; j++) {
                T gap = to_unit * h[j] - to_mean * mean[j];
                away += gap * gap;
            }
            spread += block.share[k * B + lane] * reach * away;
        }
        return rest * (far + far + rest) + far * spread;
    }

    // Gradients of the messages' sums, from which all others follow; those of the edges' weights are added to grad_weight.
    void backward(const T *grad_mean, T *grad_weight, T *source_product, T *target_product) {
        alignas(64) T times[B] = {};
        for (int lane = 0; lane < block.count; lane++) {
            const T *mean = grad_mean + block.target[lane] * (n + 1), *out = message + lane * n;
            T *pulled = grad + lane * n, along = mean[0] * message_time[lane] + dot(mean + 1, out, n);
            T factor = block.weight[lane] / mass[lane];
            for_columns<T>(n, [&](int64_t j, auto like) {
                using W = decltype(like);
                store(pulled + j, factor * (load<W>(mean + 1 + j) + along * load<W>(out + j)));
            });
            times[lane] = factor * (mean[0] - along * message_time[lane]);
            if (grad_weight) grad_weight[lane] += along;
            for (int64_t k = 0; k < K; k++) block.dot[k * B + lane] = dot(static_cast<const T *>(pulled), row(lane, k), n);
        }
        block.by_time = load<V>(times);
        differentiate(points, block);
        for (int lane = 0; lane < block.count; lane++) add_products(lane, source_product, target_product);
        add_shared();
        if (sizeof(T) == 4 && block.far) to_ends(by_stretch + 0, by_time + 0, block.far_boost, block);
        else to_ends(by_stretch + 0, by_time + 0, block.near_boost, block);
        if (++blocks == 32) flush();
    }

    void add_products(int lane, T *source_product, T *target_product) {
        for (int64_t k = 0; k < K; k++) {
            T along_message = block.along_message[k * B + lane], along_direction = block.along_direction[k * B + lane];
            const T *pulled = grad + lane * n;
            T *h = row(lane, k);
            for_columns<T>(n, [&](int64_t j, auto like) {
                using W = decltype(like);
                store(h + j, along_message * load<W>(pulled + j) - along_direction * load<W>(h + j));
            });
        }
        const T *__restrict by_row = row(lane, 0), *__restrict time = products.time;
        T *__restrict to_source = source_product + block.source[lane] * products.width;
        if (!products.target) {
            T unit = T(1 / block.far_boost.source_time[lane]);
            for (int64_t i = 0; i < length; i++) to_source[i] += unit * by_row[i];
            for (int64_t k = 0; k < K; k++) to_source[length + k] += block.by_gate[k * B + lane];
            by_stretch[lane] = by_time[lane] = 0;
            return;
        }
        double delta = block.far ? block.far_boost.delta[lane] : block.near_boost.delta[lane];
        double c_minus_1 = block.far ? block.far_boost.c_minus_1[lane] : block.near_boost.c_minus_1[lane];
        const T *__restrict px = products.target + block.target[lane] * products.width;
        T *__restrict to_target = target_product + block.target[lane] * products.width, *__restrict to_time = recent_time;
        T unit = T(1 / (1 + delta)), stretch = T(1 + c_minus_1), both = T((1 + c_minus_1) / (1 + delta)), reach = T(1 + delta);
        Sum<T> of_target, of_time;
        for_columns<T>(length, [&](int64_t i, auto like) {
            using W = decltype(like);
            W value = load<W>(by_row + i);
            store(to_source + i, load<W>(to_source + i) + unit * value);
            store(to_target + i, load<W>(to_target + i) - both * value);
            store(to_time + i, load<W>(to_time + i) + value);
            of_target.add(value * load<W>(px + i)), of_time.add(value * load<W>(time + i));
        });
        T along_target = of_target.total(), along_time = of_time.total();
        along_target *= unit, along_time *= unit;
        for (int64_t k = 0; k < K; k++) {
            T value = block.by_gate[k * B + lane];
            int64_t i = length + k;
            to_source[i] += value, to_target[i] -= stretch * value, to_time[i] += reach * value;
            along_target += value * px[i], along_time += value * time[i];
        }
        by_stretch[lane] = -along_target, by_time[lane] = along_time;
    }

    void add_shared() {
        for (int64_t k = 0; k < K; k++)
            for (int lane = 0; lane < block.count; lane++)
                scale_total[k] += double(block.by_length[k * B + lane]) * block.opening[k * B + lane];
        if (!points_too) return;
        for (int64_t k = 0; k < K; k++) {
            V factor = block.get(block.excess, k) / block.inverse_time / points.time[k];
            for (int64_t i = 0; i < block.m; i++) {
                V part = factor * (block.get(block.klein, i) - points.klein[k * block.m + i]);
                for (int lane = 0; lane < block.count; lane++) points_total[k * block.m + i] -= part[lane];
            }
        }
    }

    void flush() {
        blocks = 0;
        for (int64_t i = 0; i < length + K; i++) time_total[i] += recent_time[i], recent_time[i] = 0;
    }
};

// Aggregate at the targets `first` to `last`: points, time first, and the masses for unit total weight.
template <class T>
void aggregate_by_nodes(const Ends<T> &ends, NodeMaps<T> &maps, int64_t first, int64_t last, T *out, T *mass) {
    constexpr int B = LANES<T>;
    int64_t n = maps.n, node = first, current = first, end = ends.pointer[last];
    Total<T> total(n);
    auto reach = [&](int64_t next) {
        for (; current < next; current++, total.clear())
            total.project(ends.pointer[current] == ends.pointer[current + 1], out + current * (n + 1), mass + current);
    };
    for (int64_t start = ends.pointer[first]; start < end; start += B) {
        node = take(ends, node, start, end, maps.block);
        maps.forward(ends, start + B, end);
        for (int lane = 0; lane < maps.block.count; lane++) {
            reach(maps.block.target[lane]);
            total.join(maps.block.weight[lane], maps.message + lane * n);
        }
    }
    reach(last);
}

// Gradients that come from the edges of the targets `first` to `last`.
template <class T>
void pull_by_nodes(const Ends<T> &ends, NodeMaps<T> &maps, const Given<T> &given, int64_t first, int64_t last, T *grad_mean, T *grad_weight,
                   T *grad_source, T *grad_target, T *source_product, T *target_product) {
    constexpr int B = LANES<T>;
    spread(given, ends.pointer, ends.weight, first, last, grad_mean, grad_weight);
    int64_t node = first, end = ends.pointer[last];
    for (int64_t start = ends.pointer[first]; start < end; start += B) {
        node = take(ends, node, start, end, maps.block);
        maps.forward(ends, start + B, end, source_product);
        maps.backward(grad_mean, grad_weight ? grad_weight + start : nullptr, source_product, target_product);
        add_ends(maps.block, grad_source, grad_target);
    }
    maps.flush();
}

} // namespace hkconv
