// The entry points of hkconv.ops.cpu.
#include "by_edges.hpp"
#include "by_nodes.hpp"

namespace hkconv {

Team team = nullptr;
pid_t team_home = 0;

template <class T>
void aggregate_edges(int64_t threads, int64_t worth, int64_t S, int64_t N, int64_t K, int64_t m, int64_t n, int64_t relu, const T *source,
                     const T *target, const int32_t *pointer, const int32_t *other, const T *weight, const T *maps_weight, const T *bias,
                     const T *scale, const T *points, T *out, T *mass) {
    Array<double> source_time(S), target_time(N);
    fill_times(source, S, m, threads, static_cast<double *>(source_time));
    fill_times(target, N, m, threads, static_cast<double *>(target_time));
    Ends<T> ends{source, target, source_time, target_time, pointer, other, weight, m};
    Maps<T> maps(maps_weight, bias, scale, K, n, m, relu);
    KernelPoints<T> kernel_points(points, K, m);
    auto bounds = chunks(pointer, N, K * (n + 1), worth);
    in_threads(threads, static_cast<int64_t>(bounds.size()) - 1, [&](int64_t part) {
        aggregate_by_edges(ends, maps, kernel_points, bounds[part], bounds[part + 1], out, mass);
    });
}

template <class T>
void pull_edges(int64_t parts, int64_t threads, int64_t worth, int64_t S, int64_t N, int64_t K, int64_t m, int64_t n, int64_t relu, const T *source,
                const T *target, const int32_t *pointer, const int32_t *other, const T *weight, const T *maps_weight, const T *bias,
                const T *scale, const T *points, const T *out, const T *mass, const T *grad_out, const T *grad_mass, T *grad_mean,
                T *grad_source, T *grad_target, T *grad_weight, T *grad_maps, T *grad_bias, T *grad_scale, T *grad_points) {
    Array<double> source_time(S), target_time(N);
    fill_times(source, S, m, threads, static_cast<double *>(source_time));
    fill_times(target, N, m, threads, static_cast<double *>(target_time));
    Ends<T> ends{source, target, source_time, target_time, pointer, other, weight, m};
    Maps<T> maps(maps_weight, bias, scale, K, n, m, relu);
    KernelPoints<T> kernel_points(points, K, m);
    Given<T> given{out, mass, grad_out, grad_mass, n};
    auto bounds = chunks(pointer, N, K * (n + 1), worth);
    std::vector<std::unique_ptr<MapGradients<T>>> sums(parts);
    in_threads(threads, parts, [&](int64_t part) {
        sums[part] = std::make_unique<MapGradients<T>>(maps, grad_points != nullptr);
        EdgeMaps<T> edges(maps, kernel_points);
        for (std::size_t chunk = part; chunk + 1 < bounds.size(); chunk += parts)
            pull_by_edges(ends, edges, given, bounds[chunk], bounds[chunk + 1], grad_mean, grad_weight, grad_source + part * S * (m + 1),
                          grad_target, *sums[part]);
    });
    add_copies(grad_source, parts, S * (m + 1), threads);
    auto total = [&](auto member, int64_t i) {
        double value = 0;
        for (auto &one : sums) value += ((*one).*member)[i];
        return static_cast<T>(value);
    };
    using Sums = MapGradients<T>;
    int64_t width = sums[0]->width;
    for (int64_t row = 0; row < K * n + K; row++) {
        int64_t place = maps.place(row);
        grad_maps[row * (m + 1)] = total(&Sums::time, place);
        for (int64_t j = 0; j < m; j++) grad_maps[row * (m + 1) + 1 + j] = total(&Sums::matrix, place * width + j);
        grad_bias[row] = total(&Sums::bias, place);
    }
    for (int64_t k = 0; k < K; k++) {
        grad_scale[k] = total(&Sums::scale, k);
        if (grad_points)
            for (int64_t j = 0; j < m; j++) grad_points[k * (m + 1) + 1 + j] = total(&Sums::points, k * m + j);
    }
}

template <class T>
void aggregate_nodes(int64_t threads, int64_t worth, int64_t S, int64_t N, int64_t K, int64_t m, int64_t n, int64_t width, const T *source,
                     const T *target, const int32_t *pointer, const int32_t *other, const T *weight, const T *source_product,
                     const T *target_product, const T *bias, const T *time, const T *scale, const T *points, T *out, T *mass) {
    Array<double> source_time(S), target_time(N);
    fill_times(source, S, m, threads, static_cast<double *>(source_time));
    fill_times(target, N, m, threads, static_cast<double *>(target_time));
    Ends<T> ends{source, target, source_time, target_time, pointer, other, weight, m};
    Products<T> products{source_product, target_product, bias, time, scale, K, n, width};
    KernelPoints<T> kernel_points(points, K, m);
    auto bounds = chunks(pointer, N, width, worth);
    in_threads(threads, static_cast<int64_t>(bounds.size()) - 1, [&](int64_t part) {
        NodeMaps<T> maps(products, kernel_points, m);
        aggregate_by_nodes(ends, maps, bounds[part], bounds[part + 1], out, mass);
    });
}

template <class T>
void pull_nodes(int64_t parts, int64_t threads, int64_t worth, int64_t S, int64_t N, int64_t K, int64_t m, int64_t n, int64_t width, const T *source,
                const T *target, const int32_t *pointer, const int32_t *other, const T *weight, const T *source_product,
                const T *target_product, const T *bias, const T *time, const T *scale, const T *points, const T *out, const T *mass,
                const T *grad_out, const T *grad_mass, T *grad_mean, T *grad_source, T *grad_target, T *grad_source_product,
                T *grad_target_product, T *grad_weight, T *grad_time, T *grad_scale, T *grad_points) {
    Array<double> source_time(S), target_time(N);
    fill_times(source, S, m, threads, static_cast<double *>(source_time));
    fill_times(target, N, m, threads, static_cast<double *>(target_time));
    Ends<T> ends{source, target, source_time, target_time, pointer, other, weight, m};
    Products<T> products{source_product, target_product, bias, time, scale, K, n, width};
    KernelPoints<T> kernel_points(points, K, m);
    Given<T> given{out, mass, grad_out, grad_mass, n};
    auto bounds = chunks(pointer, N, width, worth);
    std::vector<std::unique_ptr<NodeMaps<T>>> maps(parts);
    in_threads(threads, parts, [&](int64_t part) {
        maps[part] = std::make_unique<NodeMaps<T>>(products, kernel_points, m, grad_points != nullptr);
        for (std::size_t chunk = part; chunk + 1 < bounds.size(); chunk += parts)
            pull_by_nodes(ends, *maps[part], given, bounds[chunk], bounds[chunk + 1], grad_mean, grad_weight, grad_source + part * S * (m + 1),
                          grad_target, grad_source_product + part * S * width, grad_target_product);
    });
    add_copies(grad_source, parts, S * (m + 1), threads);
    add_copies(grad_source_product, parts, S * width, threads);
    for (auto &one : maps) {
        for (int64_t i = 0; i < K * n + K; i++) grad_time[i] += static_cast<T>(one->time_total[i]);
        for (int64_t k = 0; k < K; k++) grad_scale[k] += static_cast<T>(one->scale_total[k]);
        if (grad_points)
            for (int64_t k = 0; k < K; k++)
                for (int64_t j = 0; j < m; j++) grad_points[k * (m + 1) + 1 + j] += static_cast<T>(one->points_total[k * m + j]);
    }
}

void use_team(int64_t home, Team given) { team = given, team_home = static_cast<pid_t>(home); }

int64_t is_inside(const int32_t *pointer, int64_t nodes, const int32_t *other, int64_t edges, int64_t others, const int32_t *position) {
    bool wrong = pointer[0] != 0 || pointer[nodes] != edges;
    for (int64_t i = 0; i < nodes; i++) wrong |= pointer[i + 1] < pointer[i];
    for (int64_t e = 0; e < edges; e++) wrong |= other[e] < 0 || other[e] >= others;
    if (position)
        for (int64_t e = 0; e < edges; e++) wrong |= position[e] < 0 || position[e] >= edges;
    return !wrong;
}

} // namespace hkconv

HKCONV_EXPORT(aggregate_edges)
HKCONV_EXPORT(pull_edges)
HKCONV_EXPORT(aggregate_nodes)
HKCONV_EXPORT(pull_nodes)
extern "C" {
HKCONV_PUBLIC void *use_team = reinterpret_cast<void *>(&hkconv::use_team);
HKCONV_PUBLIC void *is_inside = reinterpret_cast<void *>(&hkconv::is_inside);
}
