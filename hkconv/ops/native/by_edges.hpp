// HKLinear of each edge by itself, for maps so small that it costs less to multiply than to fetch products of the nodes.
//
// Directions and gates are rows of one matrix, each with its number for time and its bias. The loops keep tiles of TILE
// rows in registers; matrices are stored tile by tile for that, (rows/TILE, depth, TILE).
#pragma once

#include "block.hpp"

namespace hkconv {

constexpr int TILE = 8;

// out[row] += sum_j matrix[row, j] in[j] for `tiles` tiles of rows and vectors in[j] of edges.
template <class T> inline void multiply(const T *matrix, int64_t tiles, int64_t depth, const T *in, T *out) {
    using V = Vector<T>;
    constexpr int B = LANES<T>;
    for (int64_t tile = 0; tile < tiles; tile++) {
        V sums[TILE];
#pragma GCC unroll 8
        for (int r = 0; r < TILE; r++) sums[r] = load<V>(out + (tile * TILE + r) * B);
        for (int64_t j = 0; j < depth; j++) {
            V value = load<V>(in + j * B);
#pragma GCC unroll 8
            for (int r = 0; r < TILE; r++) sums[r] += value * matrix[(tile * depth + j) * TILE + r];
        }
#pragma GCC unroll 8
        for (int r = 0; r < TILE; r++) store(out + (tile * TILE + r) * B, sums[r]);
    }
}

// total[row, i] += sum_e left[row, e] right[e, i] over the edges of a block; `width` of right is a multiple of the lanes.
template <class T> inline void multiply_edges(const T *left, int64_t tiles, const T *right, int64_t width, T *total) {
    using V = Vector<T>;
    constexpr int B = LANES<T>;
    for (int64_t start = 0; start < width; start += B) {
        for (int64_t tile = 0; tile < tiles; tile++) {
            V sums[TILE];
#pragma GCC unroll 8
            for (int r = 0; r < TILE; r++) sums[r] = load<V>(total + (tile * TILE + r) * width + start);
            for (int e = 0; e < B; e++) {
                V value = load<V>(right + e * width + start);
#pragma GCC unroll 8
                for (int r = 0; r < TILE; r++) sums[r] += value * left[(tile * TILE + r) * B + e];
            }
#pragma GCC unroll 8
            for (int r = 0; r < TILE; r++) store(total + (tile * TILE + r) * width + start, sums[r]);
        }
    }
}

// K maps of HLinear: weight (K n + K, m+1) with the directions first and time in the first column, bias (K n + K,).
// Directions fill tiles of their own, for an activation changes what they see: gates start at row `gates`.
template <class T> struct Maps {
    int64_t K, n, m, gates, rows, columns;
    const T *scale;
    bool relu;
    Array<T> matrix, transposed, time, bias;

    Maps(const T *weight, const T *given_bias, const T *scale, int64_t K, int64_t n, int64_t m, bool relu)
        : K(K), n(n), m(m), gates(rounded_up(static_cast<int>(K * n), TILE)),
          rows(gates + rounded_up(static_cast<int>(K), TILE)), columns(rounded_up(static_cast<int>(m), TILE)), scale(scale),
          relu(relu), matrix(rows * m), transposed(rows * columns), time(rows), bias(rows) {
        for (int64_t given = 0; given < K * n + K; given++) {
            int64_t row = place(given);
            time[row] = weight[given * (m + 1)], bias[row] = given_bias[given];
            bool is_gate = row >= gates;
            int64_t depth = is_gate ? rows - gates : gates, start = is_gate ? gates * columns : 0, r = is_gate ? row - gates : row;
            for (int64_t j = 0; j < m; j++) {
                T value = weight[given * (m + 1) + 1 + j];
                matrix[(row / TILE * m + j) * TILE + row % TILE] = value;
                transposed[start + (j / TILE * depth + r) * TILE + j % TILE] = value;
            }
        }
    }
    int64_t place(int64_t given) const { return given < K * n ? given : gates + given - K * n; }
};

// Sums over all edges of one thread: gradients of the rows of the maps (rows, m), of their times and biases, of the scales
// and of the kernel points (K, m+1). They are collected in T for a few blocks, and then added in double precision.
template <class T> struct MapGradients {
    static constexpr int B = LANES<T>, BLOCKS = 32;
    int64_t rows, K, m, width;
    bool points_too;
    Array<double> matrix, time, bias, scale, points;
    Array<T> recent_matrix, recent_time, recent_bias, recent_scale, recent_points;
    int blocks = 0;

    MapGradients(const Maps<T> &maps, bool points_too)
        : rows(maps.rows), K(maps.K), m(maps.m), width(rounded_up(static_cast<int>(maps.m), B)), points_too(points_too),
          matrix(rows * width), time(rows), bias(rows), scale(K), points(points_too ? K * m : 0), recent_matrix(rows * width),
          recent_time(rows * B), recent_bias(rows * B), recent_scale(K * B), recent_points(points_too ? K * m * B : 0) {}

    void flush() {
        blocks = 0;
        for (int64_t i = 0; i < rows * width; i++) matrix[i] += recent_matrix[i], recent_matrix[i] = 0;
        collect(recent_time, rows, time), collect(recent_bias, rows, bias), collect(recent_scale, K, scale);
        if (points_too) collect(recent_points, K * m, points);
    }

  private:
    static void collect(T *recent, int64_t count, double *total) {
        for (int64_t i = 0; i < count; i++) {
            total[i] += sum<T>(load<Vector<T>>(recent + i * B));
            store(recent + i * B, Vector<T>{});
        }
    }
};

template <class T> struct EdgeMaps {
    static constexpr int B = LANES<T>;
    using V = Vector<T>;
    const Maps<T> &maps;
    const KernelPoints<T> &points;
    Block<T> block;
    Array<T> activated, direction, factor, message, grad, to_klein, to_activated;
    int64_t width, stride;
    Array<T> klein_rows, message_rows;

    EdgeMaps(const Maps<T> &maps, const KernelPoints<T> &points)
        : maps(maps), points(points), block(maps.m, maps.K), activated(maps.m * B), direction(maps.rows * B), factor(maps.K * B),
          message(maps.n * B), grad(maps.n * B), to_klein(maps.columns * B), to_activated(maps.columns * B),
          width(rounded_up(static_cast<int>(maps.m), B)), stride(rounded_up(static_cast<int>(maps.n), B)), klein_rows(B * width),
          message_rows(B * stride) {}

    const T *seen() const { return maps.relu ? activated : block.klein; }

    // Directions, shares, and the messages with their times and masses.
    void forward() {
        int64_t n = maps.n, K = maps.K;
        const V zero = all(T(0)), one = all(T(1));
        relate(block);
        if (maps.relu)
            for (int64_t i = 0; i < maps.m; i++) {
                V klein = block.get(block.klein, i);
                block.put(activated, i, klein < zero ? zero : klein);
            }
        for (int64_t row = 0; row < maps.rows; row++) store(direction + row * B, block.inverse_time * maps.bias[row] + maps.time[row]);
        multiply<T>(maps.matrix, maps.gates / TILE, maps.m, seen(), direction);
        multiply<T>(maps.matrix + maps.gates * maps.m, (maps.rows - maps.gates) / TILE, maps.m, block.klein, direction + maps.gates * B);
        for (int64_t k = 0; k < K; k++) {
            V square = zero;
            for (int64_t j = 0; j < n; j++) {
                V h = load<V>(direction + (k * n + j) * B);
                square += h * h;
            }
            block.put(block.square, k, square);
            block.put(block.gate, k, load<V>(direction + (maps.gates + k) * B) / block.inverse_time);
        }
        evaluate(points, maps.scale, block);
        V square = zero, time = block.message_time;
        for (int64_t k = 0; k < K; k++) block.put(factor, k, block.get(block.share, k) * block.get(block.ratio, k));
        for (int64_t j = 0; j < n; j++) {
            V mean = zero;
            for (int64_t k = 0; k < K; k++) mean += block.get(factor, k) * load<V>(direction + (k * n + j) * B);
            store(message + j * B, mean);
            square += mean * mean;
        }
        V mass = time * time - square;
        auto cancels = T(CANCELS) * mass < time * time;
        if (any(cancels)) mass = cancels ? square_of_far_sum() : mass;
        mass = root(mass);
        V inverse = one / mass;
        for (int64_t j = 0; j < n; j++) store(message + j * B, load<V>(message + j * B) * inverse);
        block.mass = mass;
        block.message_time = root(one + square * inverse * inverse);
    }

    // -<s, s> of s = sum_k nu_k x_k as a sum of non-negative terms, for points far out that lie close together. With
    // lengths l_k = |x_k,s|, unit directions d_k, f = sum nu_k l_k, r = sum nu_k (t_k - l_k) = sum nu_k/(t_k + l_k) and the
    // mean direction d = sum nu_k l_k d_k/f, it is r (2f + r) + f sum_k nu_k l_k |d_k - d|^2.
    V square_of_far_sum() const {
        const V zero = all(T(0));
        V far = zero, rest = zero, spread = zero;
        for (int64_t k = 0; k < maps.K; k++) {
            V share = block.get(block.share, k), length = block.get(block.length, k);
            far += share * length, rest += share / (block.get(block.time, k) + length);
        }
        V to_mean = far > zero ? all(T(1)) / far : zero;
        for (int64_t k = 0; k < maps.K; k++) {
            V length = block.get(block.length, k), away = zero;
            V to_unit = length > zero ? block.get(block.ratio, k) / length : zero;
            for (int64_t j = 0; j < maps.n; j++) {
                V gap = to_unit * load<V>(direction + (k * maps.n + j) * B) - to_mean * load<V>(message + j * B);
                away += gap * gap;
            }
            spread += block.get(block.share, k) * length * away;
        }
        return rest * (far + far + rest) + far * spread;
    }

    // Let the messages from `lane` on that go to the same target join its total; returns the lane of the next target.
    int join(int lane, bool is_near, const T *lengths, const T *rests, Total<T> &total) {
        int64_t n = maps.n, target = block.target[lane];
        int first = lane;
        while (lane < block.count && block.target[lane] == target) lane++;
        if (!is_near) {
            for (int l = first; l < lane; l++) total.join(block.weight[l], message_rows + l * stride);
            return lane;
        }
        double *sums = total.space;
        for (int64_t start = 0; start < stride; start += B) {
            V part = all(T(0));
            for (int l = first; l < lane; l++) part += block.weight[l] * load<V>(message_rows + l * stride + start);
            for (int64_t j = start; j < std::min(n, start + B); j++) sums[j] += part[j - start];
        }
        T far = 0, rest = 0;
        for (int l = first; l < lane; l++) far += lengths[l], rest += rests[l], total.weight += block.weight[l];
        total.far += far, total.rest += rest;
        return lane;
    }

    // Up to this square of the length of all messages their sums may be taken in float32 within a block.
    static constexpr T NEAR_MESSAGE = 9;

    bool lengths(T *lengths, T *rests) const {
        V square = block.message_time * block.message_time - T(1);
        if (sizeof(T) == 8 || any(!(square < NEAR_MESSAGE))) return false;
        square = all(T(0));
        for (int64_t j = 0; j < maps.n; j++) square += load<V>(message + j * B) * load<V>(message + j * B);
        V length = root(square);
        store(lengths, block.weight * length), store(rests, block.weight / (root(T(1) + square) + length));
        return true;
    }

    // Gradients of the messages' sums, from which those of everything before them follow; that of the weights is returned.
    V backward(const T *grad_mean, MapGradients<T> &sums) {
        int64_t n = maps.n, K = maps.K;
        const V zero = all(T(0));
        const T *means[B];
        T mean_time[B];
        for (int lane = 0; lane < B; lane++) {
            means[lane] = grad_mean + block.target[lane] * (n + 1) + 1;
            mean_time[lane] = means[lane][-1];
        }
        if (block.target[0] == block.target[B - 1])
            for (int64_t j = 0; j < n; j++) store(grad + j * B, all(means[0][j]));
        else
            rows_to_columns(means, static_cast<int>(n), static_cast<T *>(grad));
        V time_grad = load<V>(mean_time);
        V along = time_grad * block.message_time;
        for (int64_t j = 0; j < n; j++) along += load<V>(grad + j * B) * load<V>(message + j * B);
        V factor = block.weight / block.mass;
        for (int64_t j = 0; j < n; j++)
            store(grad + j * B, factor * (load<V>(grad + j * B) + along * load<V>(message + j * B)));
        block.by_time = factor * (time_grad - along * block.message_time);
        for (int64_t k = 0; k < K; k++) {
            V dot = zero;
            for (int64_t j = 0; j < n; j++) dot += load<V>(grad + j * B) * load<V>(direction + (k * n + j) * B);
            block.put(block.dot, k, dot);
        }
        differentiate(points, block);
        // The gradients of the directions and of the gates take their place.
        V by_time = zero;
        auto replace = [&](int64_t row, V value) {
            store(direction + row * B, value);
            by_time += value * maps.time[row];
            store(sums.recent_time + row * B, load<V>(sums.recent_time + row * B) + value);
            store(sums.recent_bias + row * B, load<V>(sums.recent_bias + row * B) + block.inverse_time * value);
        };
        for (int64_t k = 0; k < K; k++) {
            V along_message = block.get(block.along_message, k), along_direction = block.get(block.along_direction, k);
            for (int64_t j = 0; j < n; j++) {
                int64_t row = k * n + j;
                replace(row, along_message * load<V>(grad + j * B) - along_direction * load<V>(direction + row * B));
            }
            replace(maps.gates + k, block.get(block.by_gate, k) / block.inverse_time);
        }
        for (int64_t k = 0; k < K; k++) {
            T *scale = sums.recent_scale + k * B;
            store(scale, load<V>(scale) + block.get(block.by_length, k) * block.get(block.opening, k));
        }
        add_matrix(sums);
        if (sums.points_too) add_points(sums);
        to_features();
        alignas(64) T none[B] = {}, times[B];
        store(times, by_time * block.inverse_time);
        if (sizeof(T) == 4 && block.far) to_ends(static_cast<const T *>(none), static_cast<const T *>(times), block.far_boost, block);
        else to_ends(static_cast<const T *>(none), static_cast<const T *>(times), block.near_boost, block);
        if (++sums.blocks == MapGradients<T>::BLOCKS) sums.flush();
        return along;
    }

    void add_matrix(MapGradients<T> &sums) {
        columns_to_rows(seen(), static_cast<int>(maps.m), static_cast<T *>(klein_rows), static_cast<int>(width));
        multiply_edges<T>(direction, maps.gates / TILE, klein_rows, width, sums.recent_matrix);
        if (maps.relu)
            columns_to_rows<T>(block.klein, static_cast<int>(maps.m), static_cast<T *>(klein_rows), static_cast<int>(width));
        multiply_edges<T>(direction + maps.gates * B, (maps.rows - maps.gates) / TILE, klein_rows, width, sums.recent_matrix + maps.gates * width);
    }

    void add_points(MapGradients<T> &sums) {
        for (int64_t k = 0; k < maps.K; k++) {
            V factor = block.get(block.excess, k) / block.inverse_time / points.time[k];
            for (int64_t i = 0; i < maps.m; i++) {
                T *point = sums.recent_points + (k * maps.m + i) * B;
                store(point, load<V>(point) - factor * (block.get(block.klein, i) - points.klein[k * maps.m + i]));
            }
        }
    }

    // Add what comes through the maps to the gradient of z.
    void to_features() {
        const V zero = all(T(0));
        std::fill(to_klein + 0, to_klein + maps.columns * B, T(0));
        multiply<T>(maps.transposed + maps.gates * maps.columns, maps.columns / TILE, maps.rows - maps.gates, direction + maps.gates * B, to_klein);
        T *seen = to_klein;
        if (maps.relu) {
            seen = to_activated;
            std::fill(to_activated + 0, to_activated + maps.columns * B, T(0));
        }
        multiply<T>(maps.transposed, maps.columns / TILE, maps.gates, direction, seen);
        for (int64_t i = 0; i < maps.m; i++) {
            V value = load<V>(to_klein + i * B);
            if (maps.relu) value += block.get(block.klein, i) > zero ? load<V>(to_activated + i * B) : zero;
            block.put(block.feature, i, block.get(block.feature, i) + block.inverse_time * value);
        }
    }
};

// Aggregate at the targets `first` to `last`: points, time first, and the masses for unit total weight.
template <class T>
void aggregate_by_edges(const Ends<T> &ends, const Maps<T> &maps, const KernelPoints<T> &points, int64_t first, int64_t last, T *out, T *mass) {
    constexpr int B = LANES<T>;
    EdgeMaps<T> edges(maps, points);
    Total<T> total(maps.n);
    auto finish = [&](int64_t node) { total.project(ends.pointer[node] == ends.pointer[node + 1], out + node * (maps.n + 1), mass + node); };
    int64_t node = first, current = first, end = ends.pointer[last];
    alignas(64) T lengths[B], rests[B];
    for (int64_t start = ends.pointer[first]; start < end; start += B) {
        node = take(ends, node, start, end, edges.block);
        edges.forward();
        columns_to_rows<T>(edges.message, static_cast<int>(maps.n), static_cast<T *>(edges.message_rows), static_cast<int>(edges.stride));
        bool is_near = edges.lengths(lengths, rests);
        for (int lane = 0; lane < edges.block.count;) {
            for (; current < edges.block.target[lane]; current++) finish(current), total.clear();
            lane = edges.join(lane, is_near, lengths, rests, total);
        }
    }
    for (; current < last; current++) finish(current), total.clear();
}

// Gradients that come from the edges of the targets `first` to `last`.
template <class T>
void pull_by_edges(const Ends<T> &ends, EdgeMaps<T> &edges, const Given<T> &given, int64_t first, int64_t last, T *grad_mean, T *grad_weight,
                   T *grad_source, T *grad_target, MapGradients<T> &sums) {
    constexpr int B = LANES<T>;
    spread(given, ends.pointer, ends.weight, first, last, grad_mean, grad_weight);
    int64_t node = first, end = ends.pointer[last];
    for (int64_t start = ends.pointer[first]; start < end; start += B) {
        node = take(ends, node, start, end, edges.block);
        edges.forward();
        Vector<T> along = edges.backward(grad_mean, sums);
        if (grad_weight)
            for (int lane = 0; lane < edges.block.count; lane++) grad_weight[start + lane] += along[lane];
        add_ends(edges.block, grad_source, grad_target);
    }
    sums.flush();
}

} // namespace hkconv
