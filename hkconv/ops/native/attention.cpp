// The entry points of hkconv.ops.attention_cpu: one head, blocks of queries, each with all its keys as the edges of a graph.
#include "by_nodes.hpp"
#include "distances.hpp"

namespace hkconv {

// Queries and keys of all sequences, one after the other. A query sees the first `counts` of the keys from order[starts] on.
template <class T> struct Sight {
    const int64_t *counts, *starts;
    const int32_t *order;
    const T *query, *key;
    const double *query_time, *key_time;
    double steepness;
    int64_t m;
};

// The pairs of a block of queries, with the weights of the keys and the logarithms of the sums of exponentials.
template <class T> struct PairList {
    int64_t first, rows;
    std::vector<int32_t> pointer, other;
    std::vector<T> weight;
    std::vector<double> square;

    PairList(const Sight<T> &sight, int64_t first, int64_t last, T *log_total) : first(first), rows(last - first), pointer(1, 0) {
        for (int64_t row = first; row < last; row++) {
            const int32_t *keys = sight.order + sight.starts[row];
            other.insert(other.end(), keys, keys + sight.counts[row]);
            pointer.push_back(static_cast<int32_t>(other.size()));
        }
        int64_t count = pointer.back();
        constexpr int L = LANES<double>;
        weight.resize(count), square.resize(count + L);
        Distances<T> edges(sight.m);
        auto ends = scores(sight);
        for (int64_t start = 0, node = 0; start < count; start += LANES<T>) {
            node = edges.take(ends, node, start, count);
            for (int lane = 0; lane < edges.block.count; lane++) square[start + lane] = edges.distance[lane] * edges.distance[lane];
        }
        for (int64_t row = 0; row < rows; row++) {
            int64_t begin = pointer[row], end = pointer[row + 1];
            double lowest = INFINITY, total = 0;
            for (int64_t e = begin; e < end; e++) lowest = square[e] < lowest ? square[e] : lowest;
            for (int64_t e = begin; e < end; e += L) {
                Vector<double> values;
                for (int lane = 0; lane < L; lane++) values[lane] = e + lane < end ? -sight.steepness * (square[e + lane] - lowest) : -INFINITY;
                values = exponential<double>(values);
                for (int lane = 0; lane < L && e + lane < end; lane++) square[e + lane] = values[lane], total += values[lane];
            }
            for (int64_t e = begin; e < end; e++) weight[e] = T(square[e] / total);
            if (log_total) log_total[row] = begin < end ? T(std::log(total) - sight.steepness * lowest) : T(0);
        }
    }

    Ends<T> scores(const Sight<T> &sight) const {
        return {sight.key, sight.query + first * (sight.m + 1), sight.key_time, sight.query_time + first, pointer.data(), other.data(), nullptr, sight.m};
    }
};

// What is aggregated: the values themselves, or HKConv of them around `own`, whose products are then given.
template <class T> struct Values {
    const T *value, *own;
    const double *value_time, *own_time;
    Products<T> products;

    Ends<T> ends(const PairList<T> &pairs, int64_t m) const {
        return {value, own + pairs.first * (m + 1), value_time, own_time + pairs.first, pairs.pointer.data(), pairs.other.data(), pairs.weight.data(), m};
    }
    Products<T> of_block(const PairList<T> &pairs) const {
        Products<T> mine = products;
        mine.target += pairs.first * products.width;
        return mine;
    }
};

template <class T> void average(const PairList<T> &pairs, const T *value, int64_t m, T *out, T *mass) {
    Total<T> total(m);
    for (int64_t row = 0; row < pairs.rows; row++, total.clear()) {
        for (int64_t e = pairs.pointer[row]; e < pairs.pointer[row + 1]; e++) total.join(pairs.weight[e], value + pairs.other[e] * (m + 1) + 1);
        total.weight = 1;
        total.project(pairs.pointer[row] == pairs.pointer[row + 1], out + row * (m + 1), mass + row);
    }
}

template <class T>
void pull_average(const PairList<T> &pairs, const T *value, const double *value_time, int64_t m, const T *grad_mean, T *grad_weight, T *grad_value) {
    for (int64_t row = 0; row < pairs.rows; row++) {
        const T *mean = grad_mean + row * (m + 1);
        for (int64_t e = pairs.pointer[row]; e < pairs.pointer[row + 1]; e++) {
            int64_t j = pairs.other[e];
            const T *point = value + j * (m + 1) + 1;
            T *to = grad_value + j * (m + 1) + 1, weight = pairs.weight[e], slope = T(mean[0] / value_time[j]);
            grad_weight[e] += T(mean[0] * value_time[j]) + dot(mean + 1, point, m);
            for_columns<T>(m, [&](int64_t i, auto like) {
                using W = decltype(like);
                store(to + i, load<W>(to + i) + weight * (load<W>(mean + 1 + i) + slope * load<W>(point + i)));
            });
        }
    }
}

// Add the gradients of queries and keys, given those of the weights; returns that of the steepness.
template <class T>
double pull_scores(const PairList<T> &pairs, const Sight<T> &sight, const T *grad_weight, T *grad_query, T *grad_key) {
    constexpr int B = LANES<T>;
    Distances<T> edges(sight.m);
    auto ends = pairs.scores(sight);
    double by_steepness = 0;
    int64_t count = pairs.pointer.back();
    for (int64_t start = 0, node = 0; start < count; start += B) {
        node = edges.take(ends, node, start, count);
        alignas(64) double factor[B] = {};
        for (int lane = 0; lane < edges.block.count; lane++) {
            double by_score = double(pairs.weight[start + lane]) * grad_weight[start + lane];
            by_steepness -= by_score * edges.distance[lane] * edges.distance[lane];
            factor[lane] = -sight.steepness * by_score * edges.slope(lane);
        }
        edges.pull(factor, true);
        add_ends(edges.block, grad_key, grad_query);
    }
    return by_steepness;
}

template <class T>
void attend(int64_t threads, int64_t blocks, int64_t queries, int64_t keys, int64_t K, int64_t m, const int64_t *bounds, const int64_t *counts,
            const int64_t *starts, const int32_t *order, double steepness, const T *query, const T *key, const T *value, const T *own,
            const T *value_product, const T *own_product, const T *bias, const T *time, const T *scale, const T *points, T *out, T *mass, T *log_total) {
    Array<double> query_time(queries), key_time(keys), value_time(keys), own_time(queries);
    fill_times(query, queries, m, threads, query_time + 0), fill_times(key, keys, m, threads, key_time + 0);
    fill_times(value, keys, m, threads, value_time + 0);
    if (own) fill_times(own, queries, m, threads, own_time + 0);
    Sight<T> sight{counts, starts, order, query, key, query_time, key_time, steepness, m};
    Values<T> values{value, own, value_time, own_time, {value_product, own_product, bias, time, scale, K, m, K * (m + 1)}};
    KernelPoints<T> kernel_points(points, own ? K : 0, m);
    in_threads(threads, blocks, [&](int64_t part) {
        PairList<T> pairs(sight, bounds[part], bounds[part + 1], log_total + bounds[part]);
        T *my_out = out + bounds[part] * (m + 1), *my_mass = mass + bounds[part];
        if (!own) return average(pairs, value, m, my_out, my_mass);
        auto products = values.of_block(pairs);
        NodeMaps<T> maps(products, kernel_points, m);
        aggregate_by_nodes(values.ends(pairs, m), maps, 0, pairs.rows, my_out, my_mass);
    });
}

// Gradients for each of `parts` threads of keys, values and their products, whose sums go into the first ones.
template <class T>
void pull_attention(int64_t parts, int64_t threads, int64_t blocks, int64_t queries, int64_t keys, int64_t K, int64_t m, const int64_t *bounds,
                    const int64_t *counts, const int64_t *starts, const int32_t *order, double steepness, const T *query, const T *key, const T *value,
                    const T *own, const T *value_product, const T *own_product, const T *bias, const T *time, const T *scale, const T *points,
                    const T *out, const T *mass, const T *grad_out, T *grad_query, T *grad_key, T *grad_value, double *grad_steepness, T *grad_own,
                    T *grad_value_product, T *grad_own_product, double *grad_time, double *grad_scale, double *grad_points) {
    Array<double> query_time(queries), key_time(keys), value_time(keys), own_time(queries);
    fill_times(query, queries, m, threads, query_time + 0), fill_times(key, keys, m, threads, key_time + 0);
    fill_times(value, keys, m, threads, value_time + 0);
    if (own) fill_times(own, queries, m, threads, own_time + 0);
    Sight<T> sight{counts, starts, order, query, key, query_time, key_time, steepness, m};
    int64_t width = K * (m + 1), all_rows = keys * (m + 1);
    Values<T> values{value, own, value_time, own_time, {value_product, own_product, bias, time, scale, K, m, width}};
    KernelPoints<T> kernel_points(points, own ? K : 0, m);
    std::vector<double> by_steepness(blocks);
    struct Shared {
        std::vector<double> time, scale, points;
    };
    std::vector<Shared> shared(blocks);
    in_threads(threads, parts, [&](int64_t part) {
        for (int64_t number = part; number < blocks; number += parts) {
            int64_t first = bounds[number];
            PairList<T> pairs(sight, first, bounds[number + 1], nullptr);
            Given<T> given{out + first * (m + 1), mass + first, grad_out + first * (m + 1), nullptr, m};
            Array<T> grad_mean(pairs.rows * (m + 1)), grad_weight(pairs.weight.size());
            if (own) {
                auto products = values.of_block(pairs);
                NodeMaps<T> maps(products, kernel_points, m, grad_points != nullptr);
                pull_by_nodes<T>(values.ends(pairs, m), maps, given, 0, pairs.rows, grad_mean, grad_weight, grad_value + part * all_rows,
                                 grad_own + first * (m + 1), grad_value_product + part * keys * width, grad_own_product + first * width);
                shared[number].time.assign(maps.time_total + 0, maps.time_total + width);
                shared[number].scale.assign(maps.scale_total + 0, maps.scale_total + K);
                if (grad_points) shared[number].points.assign(maps.points_total + 0, maps.points_total + K * m);
            } else {
                spread<T>(given, pairs.pointer.data(), pairs.weight.data(), 0, pairs.rows, grad_mean, grad_weight);
                pull_average<T>(pairs, value, value_time, m, grad_mean, grad_weight, grad_value + part * all_rows);
            }
            by_steepness[number] = pull_scores<T>(pairs, sight, grad_weight, grad_query + first * (m + 1), grad_key + part * all_rows);
        }
    });
    add_copies(grad_key, parts, all_rows, threads), add_copies(grad_value, parts, all_rows, threads);
    if (own) add_copies(grad_value_product, parts, keys * width, threads);
    for (int64_t number = 0; number < blocks; number++) {
        *grad_steepness += by_steepness[number];
        if (!own) continue;
        for (int64_t i = 0; i < width; i++) grad_time[i] += shared[number].time[i];
        for (int64_t k = 0; k < K; k++) grad_scale[k] += shared[number].scale[k];
        if (grad_points)
            for (int64_t k = 0; k < K; k++)
                for (int64_t i = 0; i < m; i++) grad_points[k * (m + 1) + 1 + i] += shared[number].points[k * m + i];
    }
}

} // namespace hkconv

HKCONV_EXPORT(attend)
HKCONV_EXPORT(pull_attention)
