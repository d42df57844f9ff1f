// Distances along edges, in double precision whatever the points are stored in.
#pragma once

#include "block.hpp"

namespace hkconv {

// Blocks of edges with their distances d = arcosh(1 + delta) and sinh d.
template <class T> struct Distances {
    static constexpr int B = LANES<T>;
    Block<T> block;
    alignas(64) double distance[B], sinh[B];

    explicit Distances(int64_t m) : block(m, 0) {}

    int64_t take(const Ends<T> &ends, int64_t node, int64_t start, int64_t end) {
        node = hkconv::take(ends, node, start, end, block);
        for (int lane = 0; lane < B; lane += LANES<double>) {
            relate_lanes<T, double>(block.u, block.x, block.m, lane, block.far_boost, block.klein);
            auto delta = load<Vector<double>>(block.far_boost.delta + lane);
            auto root_of_both = root(delta) * root(delta + 2.0);
            store(sinh + lane, root_of_both), store(distance + lane, log1p<double>(delta + root_of_both));
        }
        return node;
    }

    // Fill block.to_target with f (x - u) - f (x_t - u_t)/x_t x for a factor f of each edge, and block.to_source with the same
    // of the other end.
    void pull(const double *factor, bool both) {
        using V = Vector<double>;
        const auto &boost = block.far_boost;
        for (int lane = 0; lane < B; lane += LANES<double>) {
            V along = load<V>(factor + lane), gap = along * load<V>(boost.gap + lane);
            V of_target = gap / load<V>(boost.target_time + lane), of_source = -gap / load<V>(boost.source_time + lane);
            for (int64_t i = 0; i < block.m; i++) {
                V u = load_as<double>(block.u + i * B + lane), x = load_as<double>(block.x + i * B + lane);
                V apart = along * (x - u);
                store_as<double>(block.to_target + i * B + lane, apart + of_target * x);
                if (both) store_as<double>(block.to_source + i * B + lane, of_source * u - apart);
            }
        }
    }

    // Twice d/sinh d, which is 2 where points meet.
    double slope(int lane) const { return sinh[lane] > 0 ? 2 * distance[lane] / sinh[lane] : 2; }
};

// The sum of rows that belong to the same node, written when the next one comes.
template <class T> class RowSum {
  public:
    RowSum(int64_t m, T *rows, int64_t node) : m_(m), rows_(rows), node_(node), total_(m) {}
    void reach(int64_t node) {
        if (node == node_) return;
        for (int64_t i = 0; i < m_; i++) {
            rows_[node_ * (m_ + 1) + 1 + i] = static_cast<T>(total_[i]);
            total_[i] = 0;
        }
        node_ = node;
    }
    void add(const T *row) {
        for (int64_t i = 0; i < m_; i++) total_[i] += row[i];
    }

  private:
    int64_t m_;
    T *rows_;
    int64_t node_;
    Array<double> total_;
};

} // namespace hkconv
