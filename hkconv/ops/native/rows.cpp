// The entry points of hkconv.ops.rows_cpu. A row is computed in double precision whatever it is stored in, which costs
// little beside reading it.
#include "lanes.hpp"
#include "threads.hpp"

namespace hkconv {

constexpr int L = LANES<double>;
using V = Vector<double>;

// Rows taken together: the vector units compute all their exponentials at once.
constexpr int ROWS = 32;

// Sums of squares that have neither overflown nor lost digits.
constexpr double SQUARES_FROM = 1e-280, SQUARES_TO = 1e280;

// Call body(j, from) for columns first to n, where from(row) is row[j] and what follows, in double precision.
template <class T, class Body> inline void for_doubles(int64_t first, int64_t n, Body body) {
    int64_t j = first;
    for (; j + L <= n; j += L) body(j, [j](const auto *row) { return load_as<double>(row + j); });
    for (; j < n; j++) body(j, [j](const auto *row) { return double(row[j]); });
}
template <class T> inline void put(T *row, int64_t j, V value) { store_as<double>(row + j, value); }
template <class T> inline void put(T *row, int64_t j, double value) { row[j] = static_cast<T>(value); }

inline void exponentials(double *values, int64_t count) { // of an array with room for whole vectors
    for (int64_t i = 0; i < count; i += L) store(values + i, exponential<double>(load<V>(values + i)));
}
inline void sigmoids(double *values, int64_t count) {
    for (int64_t i = 0; i < count; i += L) store(values + i, 1.0 / (1.0 + exponential<double>(-load<V>(values + i))));
}

// Three views of nodes, rows of `width` coordinates, and the gates that choose among them.
template <class T> struct Views {
    const T *rows[3];
    int64_t strides[3], width;
    const double *gate_weight, *gate_mix;
    double R;
    const T *row(int c, int64_t i) const { return rows[c] + i * strides[c]; }
};

// Openings and shares of a block of rows, and the Lorentz squares of the gaps between their views.
template <class T> struct Shares {
    alignas(64) double opening[3 * ROWS + L], share[3 * ROWS + L], square[3 * ROWS];

    void look(const Views<T> &views, int64_t start, int count) {
        int64_t width = views.width;
        const double *weight = views.gate_weight;
        for (int b = 0; b < count; b++) {
            const T *x = views.row(0, start + b), *y = views.row(1, start + b), *z = views.row(2, start + b);
            Sum<double> open[3], gaps[3];
            for_doubles<T>(0, width, [&](int64_t, auto at) {
                open[0].add(at(x) * at(weight)), open[1].add(at(y) * at(weight + width)), open[2].add(at(z) * at(weight + 2 * width));
            });
            for_doubles<T>(1, width, [&](int64_t, auto at) {
                auto yz = at(y) - at(z), xz = at(x) - at(z), xy = at(x) - at(y);
                gaps[0].add(yz * yz), gaps[1].add(xz * xz), gaps[2].add(xy * xy);
            });
            double times[3] = {double(y[0]) - z[0], double(x[0]) - z[0], double(x[0]) - y[0]};
            for (int c = 0; c < 3; c++) {
                opening[3 * b + c] = open[c].total();
                square[3 * b + c] = gaps[c].total() - times[c] * times[c];
            }
        }
        sigmoids(opening, 3 * count);
        for (int b = 0; b < 3 * count; b += 3) {
            double highest = -INFINITY;
            for (int c = 0; c < 3; c++) {
                double value = opening[b + c];
                for (int other = 0; other < 3; other++) value += opening[b + other] * views.gate_mix[3 * other + c];
                share[b + c] = 3 * value;
                highest = share[b + c] > highest ? share[b + c] : highest;
            }
            for (int c = 0; c < 3; c++) share[b + c] -= highest;
        }
        exponentials(share, 3 * count);
        for (int b = 0; b < 3 * count; b += 3) {
            double total = share[b] + share[b + 1] + share[b + 2];
            for (int c = 0; c < 3; c++) share[b + c] /= total;
        }
    }
};

// sum_c g_c |y_c - mean|^2 = sum_{c < c'} g_c g_c' |y_c - y_c'|^2: below 0 only by rounding.
inline double variance_of(const double *share, const double *square) {
    return share[0] * share[1] * square[2] + share[2] * (share[0] * square[1] + share[1] * square[0]);
}
inline double mass_of(double variance, double R) { return !(variance < 0) ? std::sqrt(1 + variance / (R * R)) : 1; }

// Fill `out` with the scaled mean; the square of its space.
template <class T, class Out> inline double mean_of(const Views<T> &views, int64_t i, const double *share, double scale, Out *out) {
    const T *x = views.row(0, i), *y = views.row(1, i), *z = views.row(2, i);
    double of_x = scale * share[0], of_y = scale * share[1], of_z = scale * share[2];
    Sum<double> square;
    for_doubles<T>(1, views.width, [&](int64_t j, auto at) {
        auto value = of_x * at(x) + of_y * at(y) + of_z * at(z);
        put(out, j, value), square.add(value * value);
    });
    out[0] = static_cast<Out>(of_x * x[0] + of_y * y[0] + of_z * z[0]);
    return square.total();
}

inline int64_t bound(int64_t rows, int64_t parts, int64_t part) { return rows * part / parts; }

template <class T>
void mixed_views(int64_t threads, int64_t parts, int64_t rows, int64_t width, const T *x, int64_t at_x, const T *y, int64_t at_y, const T *z, int64_t at_z,
                 const double *gate_weight, const double *gate_mix, double R, T *out) {
    Views<T> views{{x, y, z}, {at_x, at_y, at_z}, width, gate_weight, gate_mix, R};
    in_threads(threads, parts, [&](int64_t part) {
        Shares<T> shares;
        int64_t last = bound(rows, parts, part + 1);
        for (int64_t start = bound(rows, parts, part); start < last; start += ROWS) {
            int count = static_cast<int>(std::min<int64_t>(ROWS, last - start));
            shares.look(views, start, count);
            for (int b = 0; b < count; b++) {
                const double *share = shares.share + 3 * b;
                double mass = mass_of(variance_of(share, shares.square + 3 * b), R);
                T *mean = out + (start + b) * width;
                double square = mean_of(views, start + b, share, 1 / mass, mean);
                mean[0] = static_cast<T>(std::sqrt(R * R + square));
            }
        }
    });
}

// From products of the gaps with the mean's gradient, in `along`, to gradients of v_c . y_c, in their place. The softmax takes
// from the gradient of g_c what all have in common, which leaves mean'.(y_c - mean) and Var' (|y_c - mean|^2 - Var), where
// |y_c - mean|^2 = sum_c' g_c' |y_c - y_c'|^2 - Var.
inline void to_openings(const double *opening, const double *share, const double *square, double variance, double *along, double by_variance,
                        const double *mix, double *by_mix) {
    double near[3] = {share[1] * square[2] + share[2] * square[1], share[0] * square[2] + share[2] * square[0],
                      share[0] * square[1] + share[1] * square[0]};
    double by_share[3];
    for (int c = 0; c < 3; c++) by_share[c] = 3 * share[c] * (along[c] + by_variance * (near[c] - 2 * variance));
    for (int c = 0; c < 3; c++) {
        double by_opening = by_share[c];
        for (int other = 0; other < 3; other++) {
            by_mix[3 * c + other] += opening[c] * by_share[other];
            by_opening += mix[3 * c + other] * by_share[other];
        }
        along[c] = by_opening * opening[c] * (1 - opening[c]);
    }
}

// With the mean m, the mass M = sqrt(1 + Var/R^2) and the space h = m_s/M of the result: m_s' = h'/M, M' = -h'.h/M and
// Var' = M'/(2 M R^2). The views' gradients are g_c mean' + 2 g_c Var' (y_c - mean) + a_c' v_c, the second with the sign of
// time. `by_weight` and `by_mix` have a place for each part.
template <class T>
void pull_mixed_views(int64_t threads, int64_t parts, int64_t rows, int64_t width, const T *x, int64_t at_x, const T *y, int64_t at_y, const T *z,
                      int64_t at_z, const double *gate_weight, const double *gate_mix, double R, const T *grad, T *by_x, T *by_y, T *by_z,
                      double *by_weight, double *by_mix) {
    Views<T> views{{x, y, z}, {at_x, at_y, at_z}, width, gate_weight, gate_mix, R};
    T *by_views[3] = {by_x, by_y, by_z};
    in_threads(threads, parts, [&](int64_t part) {
        Shares<T> shares;
        Array<double> mean(width), by_mean(width);
        double *of_weight = by_weight + part * 3 * width, *of_mix = by_mix + part * 9;
        int64_t last = bound(rows, parts, part + 1);
        for (int64_t start = bound(rows, parts, part); start < last; start += ROWS) {
            int count = static_cast<int>(std::min<int64_t>(ROWS, last - start));
            shares.look(views, start, count);
            for (int b = 0; b < count; b++) {
                int64_t i = start + b;
                const double *share = shares.share + 3 * b, *square = shares.square + 3 * b;
                const T *out = grad + i * width;
                double variance = variance_of(share, square), mass = mass_of(variance, R), inverse = 1 / mass;
                double total = mean_of(views, i, share, 1.0, mean + 0);
                double slope = out[0] / (mass * std::sqrt(R * R + total / (mass * mass)));
                Sum<double> product, gaps[3];
                for_doubles<T>(1, width, [&](int64_t j, auto at) {
                    auto value = inverse * (at(out) + slope * at(mean + 0));
                    put(by_mean + 0, j, value), product.add(value * at(mean + 0));
                });
                by_mean[0] = 0;
                double by_variance = -product.total() / (2 * mass * mass * R * R), along[3];
                if (variance < 0) by_variance = 0;
                for (int c = 0; c < 3; c++)
                    for_doubles<T>(1, width, [&](int64_t, auto at) { gaps[c].add(at(by_mean + 0) * (at(views.row(c, i)) - at(mean + 0))); });
                for (int c = 0; c < 3; c++) along[c] = gaps[c].total();
                to_openings(shares.opening + 3 * b, share, square, variance, along, by_variance, gate_mix, of_mix);
                for (int c = 0; c < 3; c++) {
                    const T *row = views.row(c, i);
                    const double *weight = gate_weight + c * width;
                    T *found = by_views[c] + i * width;
                    double *sums = of_weight + c * width, spread = 2 * by_variance;
                    for_doubles<T>(0, width, [&](int64_t j, auto at) {
                        auto own = at(row);
                        put(found, j, share[c] * (at(by_mean + 0) + spread * (own - at(mean + 0))) + along[c] * at(weight));
                        put(sums, j, at(static_cast<const double *>(sums)) + along[c] * own);
                    });
                    found[0] = static_cast<T>(along[c] * weight[0] - share[c] * spread * (row[0] - mean[0]));
                }
            }
        }
    });
}

// K maps of HLinear from their products: rows of K directions of n numbers, then K gates.
template <class T> struct Gated {
    int64_t K, n;
    const T *products;
    const double *bias, *gate_bias, *scale;
    double R, tiny;

    void open(int64_t start, int count, double *opening) const {
        for (int b = 0; b < count; b++)
            for (int64_t k = 0; k < K; k++) opening[b * K + k] = products[(start + b) * K * (n + 1) + K * n + k] + gate_bias[k];
        sigmoids(opening, count * K);
    }

    // Fill `direction` with products and bias; their norm.
    double shift(int64_t i, int64_t k, double *direction) const {
        const T *row = products + i * K * (n + 1) + k * n;
        const double *shift = bias + k * n;
        Sum<double> sum;
        for_doubles<T>(0, n, [&](int64_t j, auto at) {
            auto value = at(row) + at(shift);
            put(direction, j, value), sum.add(value * value);
        });
        double total = sum.total(), largest = 0;
        if (SQUARES_FROM < total && total < SQUARES_TO) return std::sqrt(total);
        for (int64_t j = 0; j < n; j++) largest = std::fabs(direction[j]) > largest ? std::fabs(direction[j]) : largest;
        if (largest == 0) return total; // 0, or NaN
        total = 0;
        for (int64_t j = 0; j < n; j++) total += (direction[j] / largest) * (direction[j] / largest);
        return largest * std::sqrt(total);
    }

    // 1/|z|, and how far out the point is: 1 and 0 where there is no direction.
    void reach(double norm, double length, double *inverse, double *far) const {
        *inverse = norm < tiny ? 1 : 1 / norm;
        *far = norm < tiny ? 0 : length * (norm / norm); // not a number where the norm is none
    }
};

template <class T>
void gated_points(int64_t threads, int64_t parts, int64_t rows, int64_t K, int64_t n, const T *products, const double *bias, const double *gate_bias,
                  const double *scale, double R, double tiny, T *out) {
    Gated<T> maps{K, n, products, bias, gate_bias, scale, R, tiny};
    in_threads(threads, parts, [&](int64_t part) {
        Array<double> opening(ROWS * K + L), direction(n);
        int64_t last = bound(rows, parts, part + 1);
        for (int64_t start = bound(rows, parts, part); start < last; start += ROWS) {
            int count = static_cast<int>(std::min<int64_t>(ROWS, last - start));
            maps.open(start, count, opening);
            for (int64_t b = 0; b < count * K; b++) {
                double length = scale[b % K] * opening[b], inverse, far;
                maps.reach(maps.shift(start + b / K, b % K, direction), length, &inverse, &far);
                T *point = out + (start * K + b) * (n + 1);
                for_doubles<T>(0, n, [&](int64_t j, auto at) { put(point + 1, j, length * inverse * at(direction + 0)); });
                point[0] = static_cast<T>(std::sqrt(R * R + far * far));
            }
        }
    });
}

// With u = z/|z|: z' = (l/|z|)(s' - (s'.u) u) and l' = s'.u + t' l/t. `by_gate` has a row for the biases of the gates and one for
// the logarithms of the scales; it and `by_bias` have a place for each part.
template <class T>
void pull_gated_points(int64_t threads, int64_t parts, int64_t rows, int64_t K, int64_t n, const T *products, const double *bias,
                       const double *gate_bias, const double *scale, double R, double tiny, const T *grad, T *by_products, double *by_bias,
                       double *by_gate) {
    Gated<T> maps{K, n, products, bias, gate_bias, scale, R, tiny};
    in_threads(threads, parts, [&](int64_t part) {
        Array<double> opening(ROWS * K + L), direction(n);
        double *of_bias = by_bias + part * K * n, *of_gate = by_gate + part * 2 * K;
        int64_t last = bound(rows, parts, part + 1);
        for (int64_t start = bound(rows, parts, part); start < last; start += ROWS) {
            int count = static_cast<int>(std::min<int64_t>(ROWS, last - start));
            maps.open(start, count, opening);
            for (int64_t b = 0; b < count * K; b++) {
                int64_t i = start + b / K, k = b % K;
                double length = scale[k] * opening[b], inverse, far;
                maps.reach(maps.shift(i, k, direction), length, &inverse, &far);
                const T *own = grad + (i * K + k) * (n + 1);
                Sum<double> sum;
                for_doubles<T>(0, n, [&](int64_t, auto at) { sum.add(at(direction + 0) * at(own + 1)); });
                double along = inverse * sum.total(), by_length = along + own[0] * (far / std::sqrt(R * R + far * far));
                double by_opening = by_length * length * (1 - opening[b]), factor = length * inverse, back = factor * (along * inverse);
                T *found = by_products + i * K * (n + 1);
                double *sums = of_bias + k * n;
                for_doubles<T>(0, n, [&](int64_t j, auto at) {
                    auto value = factor * at(own + 1) - back * at(direction + 0);
                    put(found + k * n, j, value), put(sums, j, at(static_cast<const double *>(sums)) + value);
                });
                found[K * n + k] = static_cast<T>(by_opening);
                of_gate[k] += by_opening, of_gate[K + k] += by_length * length;
            }
        }
    });
}

} // namespace hkconv

HKCONV_EXPORT(mixed_views)
HKCONV_EXPORT(pull_mixed_views)
HKCONV_EXPORT(gated_points)
HKCONV_EXPORT(pull_gated_points)
