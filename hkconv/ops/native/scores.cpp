// The entry points of hkconv.ops.scores_cpu.
#include "distances.hpp"

namespace hkconv {

template <class T>
void square_distances(int64_t threads, int64_t worth, int64_t S, int64_t N, int64_t m, const T *source, const T *target, const int32_t *pointer,
                      const int32_t *other, T *out) {
    Array<double> source_time(S), target_time(N);
    fill_times(source, S, m, threads, static_cast<double *>(source_time));
    fill_times(target, N, m, threads, static_cast<double *>(target_time));
    Ends<T> ends{source, target, source_time, target_time, pointer, other, nullptr, m};
    auto bounds = chunks(pointer, N, m + 1, worth);
    in_threads(threads, static_cast<int64_t>(bounds.size()) - 1, [&](int64_t part) {
        Distances<T> edges(m);
        int64_t node = bounds[part], end = pointer[bounds[part + 1]];
        for (int64_t start = pointer[node]; start < end; start += LANES<T>) {
            node = edges.take(ends, node, start, end);
            for (int lane = 0; lane < edges.block.count; lane++) out[start + lane] = T(edges.distance[lane] * edges.distance[lane]);
        }
    });
}

// Gradients of the nodes by which edges are sorted, the targets here; `position` is that of an edge in `grad`, or null.
template <class T>
void pull_distances(int64_t threads, int64_t worth, int64_t S, int64_t N, int64_t m, const T *source, const T *target, const int32_t *pointer,
                    const int32_t *other, const int32_t *position, const T *grad, T *grad_target) {
    constexpr int B = LANES<T>;
    Array<double> source_time(S), target_time(N);
    fill_times(source, S, m, threads, static_cast<double *>(source_time));
    fill_times(target, N, m, threads, static_cast<double *>(target_time));
    Ends<T> ends{source, target, source_time, target_time, pointer, other, nullptr, m};
    auto bounds = chunks(pointer, N, m + 1, worth);
    in_threads(threads, static_cast<int64_t>(bounds.size()) - 1, [&](int64_t part) {
        Distances<T> edges(m);
        int64_t node = bounds[part], end = pointer[bounds[part + 1]], stride = rounded_up(static_cast<int>(m), B);
        RowSum<T> sum(m, grad_target, node);
        for (int64_t start = pointer[node]; start < end; start += B) {
            node = edges.take(ends, node, start, end);
            alignas(64) double factor[B];
            for (int lane = 0; lane < B; lane++) {
                int64_t e = start + std::min(lane, edges.block.count - 1);
                factor[lane] = edges.slope(lane) * grad[position ? position[e] : e];
            }
            edges.pull(factor, false);
            columns_to_rows<T>(edges.block.to_target, static_cast<int>(m), edges.block.rows + 0, static_cast<int>(stride));
            for (int lane = 0; lane < edges.block.count; lane++) {
                sum.reach(edges.block.target[lane]);
                sum.add(edges.block.rows + lane * stride);
            }
        }
        if (pointer[bounds[part]] < end) sum.reach(-1);
    });
}

} // namespace hkconv

HKCONV_EXPORT(square_distances)
HKCONV_EXPORT(pull_distances)
