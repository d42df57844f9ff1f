// Vectors of numbers as wide as the processor's registers, and what is computed with all their lanes at once.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hkconv {

#if defined(__AVX512F__)
constexpr int BYTES = 64;
#elif defined(__AVX2__)
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif

template <class T> constexpr int LANES = BYTES / static_cast<int>(sizeof(T));

template <class T, int N> struct VectorOf {
    typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, int N = LANES<T>> using Vector = typename VectorOf<T, N>::type;

template <class T> struct BitsOf;
template <> struct BitsOf<float> { using type = int32_t; };
template <> struct BitsOf<double> { using type = int64_t; };
template <class T> using Bits = typename BitsOf<T>::type;

template <class V> inline V load(const void *from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class V> inline void store(void *to, V value) { std::memcpy(to, &value, sizeof value); }

template <class T> inline Vector<T> all(T value) { return Vector<T>{} + value; }

// As many numbers of T as D has lanes, as lanes of D.
template <class D, class T> inline Vector<D> load_as(const T *from) {
    if constexpr (std::is_same_v<D, T>) {
        return load<Vector<D>>(from);
    } else {
        return __builtin_convertvector(load<Vector<T, LANES<D>>>(from), Vector<D>);
    }
}
template <class D, class T> inline void store_as(T *to, Vector<D> value) {
    if constexpr (std::is_same_v<D, T>) {
        store(to, value);
    } else {
        store(to, __builtin_convertvector(value, Vector<T, LANES<D>>));
    }
}

template <class V> inline V root(V x) {
#if defined(__AVX512F__)
    if constexpr (sizeof(x[0]) == 4) return (V)_mm512_sqrt_ps((__m512)x);
    else return (V)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__)
    if constexpr (sizeof(x[0]) == 4) return (V)_mm256_sqrt_ps((__m256)x);
    else return (V)_mm256_sqrt_pd((__m256d)x);
#elif defined(__SSE2__)
    if constexpr (sizeof(x[0]) == 4) return (V)_mm_sqrt_ps((__m128)x);
    else return (V)_mm_sqrt_pd((__m128d)x);
#else
    V result;
    for (unsigned i = 0; i < sizeof(x) / sizeof(x[0]); i++) result[i] = std::sqrt(x[i]);
    return result;
#endif
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HKCONV_SHUFFLES 1
#endif
#endif

#ifdef HKCONV_SHUFFLES
template <int FIRST, class V, std::size_t... I> inline auto lanes_from(V x, std::index_sequence<I...>) {
    return __builtin_shufflevector(x, x, (FIRST + int(I))...);
}
template <int COUNT, int FIRST, class V> inline auto half(V x) { return lanes_from<FIRST>(x, std::make_index_sequence<COUNT>()); }
#endif

template <class M> inline bool any(M mask) {
    M together = mask;
    bool found = false;
    for (unsigned i = 0; i < sizeof(mask) / sizeof(mask[0]); i++) found |= together[i] != 0;
    return found;
}

template <class T, int N> inline T sum_of(Vector<T, N> x) {
#ifdef HKCONV_SHUFFLES
    if constexpr (N > 2) return sum_of<T, N / 2>(half<N / 2, 0>(x) + half<N / 2, N / 2>(x));
#endif
    T total = x[0];
    for (int i = 1; i < N; i++) total += x[i];
    return total;
}
template <class T> inline T sum(Vector<T> x) { return sum_of<T, LANES<T>>(x); }

// A sum over the columns of rows, by vectors and what is left of them.
template <class T> struct Sum {
    Vector<T> lanes{};
    T rest{};
    void add(Vector<T> values) { lanes += values; }
    void add(T value) { rest += value; }
    T total() const { return sum<T>(lanes) + rest; }
};

// Call body(j, like) for columns j to n, where `like` has the type to load from there: a vector, or a number at the end.
template <class T, class Body> inline void for_columns(int64_t n, Body body) {
    int64_t j = 0;
    for (; j + LANES<T> <= n; j += LANES<T>) body(j, Vector<T>{});
    for (; j < n; j++) body(j, T{});
}

// Exponential and logarithm are polynomials after the usual reduction, within 2e-7 of the true value in float32 and two
// units in the last place in float64.

template <class T> struct Elementary;

template <> struct Elementary<float> {
    static constexpr float LOG2_E = 1.4426950408889634f, SQRT2 = 1.4142135623730951f;
    // ln 2 in two parts, the first short enough that its multiples are exact.
    static constexpr float LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;
    // The last bits of a sum with this are the nearest whole number.
    static constexpr float WHOLE = 12582912.0f;
    // Beyond, the result is not a normal number: 1/(1 + exp(x)) is 0 or 1 there in any case.
    static constexpr float LOW = -87.0f, HIGH = 88.0f;
    static constexpr float TAYLOR[] = {1.0f / 2, 1.0f / 6, 1.0f / 24, 1.0f / 120, 1.0f / 720, 1.0f / 5040};
    static constexpr float ATANH[] = {2.0f / 3, 2.0f / 5, 2.0f / 7, 2.0f / 9, 2.0f / 11};
    static constexpr int EXPONENT = 23, BIAS = 127;
    static constexpr int32_t MANTISSA = 0x7FFFFF, ONE = 0x3F800000;
};

template <> struct Elementary<double> {
    static constexpr double LOG2_E = 1.4426950408889634, SQRT2 = 1.4142135623730951;
    static constexpr double LN2_HIGH = 0x1.62e42fee00000p-1, LN2_LOW = 0x1.a39ef35793c76p-33;
    static constexpr double WHOLE = 6755399441055744.0;
    static constexpr double LOW = -708.0, HIGH = 709.0;
    static constexpr double TAYLOR[] = {1.0 / 2,         1.0 / 6,          1.0 / 24,         1.0 / 120,
                                        1.0 / 720,       1.0 / 5040,       1.0 / 40320,      1.0 / 362880,
                                        1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0, 1.0 / 6227020800.0};
    static constexpr double ATANH[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                       2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
    static constexpr int EXPONENT = 52, BIAS = 1023;
    static constexpr int64_t MANTISSA = 0xFFFFFFFFFFFFF, ONE = 0x3FF0000000000000;
};

template <class T, int N> inline Vector<T> polynomial(const T (&coefficients)[N], Vector<T> x) {
    Vector<T> value = all(coefficients[N - 1]);
    for (int i = N - 2; i >= 0; i--) value = value * x + coefficients[i];
    return value;
}

// exp(x), which stops at the ends of a range that is given above in float32, and is 0 and infinite beyond it in float64.
template <class T> inline Vector<T> exponential(Vector<T> given) {
    using E = Elementary<T>;
    using I = Vector<Bits<T>>;
    Vector<T> x = given;
    x = x < E::LOW ? all(E::LOW) : x;
    x = x > E::HIGH ? all(E::HIGH) : x;
    Vector<T> shifted = x * E::LOG2_E + E::WHOLE;
    Vector<T> power = shifted - E::WHOLE;
    Vector<T> rest = (x - power * E::LN2_HIGH) - power * E::LN2_LOW;
    Vector<T> scale = (Vector<T>)(((I)shifted + E::BIAS) << E::EXPONENT);
    Vector<T> value = scale * ((rest + rest * rest * polynomial(E::TAYLOR, rest)) + T(1));
    if constexpr (sizeof(T) == 8) {
        value = given < E::LOW ? all(T(0)) : value;
        value = given > E::HIGH ? all(std::numeric_limits<T>::infinity()) : value;
    }
    return value;
}

// log(1 + y) for y >= 0.
template <class T> inline Vector<T> log1p(Vector<T> y) {
    using E = Elementary<T>;
    using I = Vector<Bits<T>>;
    Vector<T> w = y + T(1);
    I bits = (I)w;
    I exponent = (bits >> E::EXPONENT) - E::BIAS;
    Vector<T> mantissa = (Vector<T>)((bits & E::MANTISSA) | E::ONE);
    auto large = mantissa > E::SQRT2;
    mantissa = large ? mantissa * T(0.5) : mantissa;
    Vector<T> power = __builtin_convertvector(exponent, Vector<T>) + (large ? all(T(1)) : all(T(0)));
    Vector<T> s = (mantissa - T(1)) / (mantissa + T(1));
    Vector<T> s2 = s * s;
    Vector<T> lost = (y - (w - T(1))) / w; // by rounding 1 + y
    Vector<T> value = power * E::LN2_HIGH + (power * E::LN2_LOW + (T(2) * s + (s * s2 * polynomial(E::ATANH, s2) + lost)));
    return y > std::numeric_limits<T>::max() ? y : value;
}

// Square matrices of registers are transposed by exchanging blocks beside the diagonal, of half the size in each step.

#ifdef HKCONV_SHUFFLES
template <int STEP, class V, std::size_t... I>
inline void exchange(V &upper, V &lower, std::index_sequence<I...>) {
    constexpr int N = sizeof...(I);
    V left = __builtin_shufflevector(upper, lower, ((int(I) & STEP) ? N + int(I) - STEP : int(I))...);
    V right = __builtin_shufflevector(upper, lower, ((int(I) & STEP) ? N + int(I) : int(I) + STEP)...);
    upper = left, lower = right;
}

template <int STEP, class V, int N> inline void transpose_blocks(V (&rows)[N]) {
#pragma GCC unroll 16
    for (int i = 0; i < N; i++)
        if (!(i & STEP)) exchange<STEP>(rows[i], rows[i + STEP], std::make_index_sequence<N>());
    if constexpr (STEP > 1) transpose_blocks<STEP / 2>(rows);
}
#endif

// From rows of `width` numbers, `pointers[lane]` each, to columns: out[j * LANES + lane].
template <class T> inline void rows_to_columns(const T *const *pointers, int width, T *out) {
    constexpr int B = LANES<T>;
    int start = 0;
#ifdef HKCONV_SHUFFLES
    for (; start + B <= width; start += B) {
        Vector<T> tile[B];
#pragma GCC unroll 16
        for (int lane = 0; lane < B; lane++) tile[lane] = load<Vector<T>>(pointers[lane] + start);
        transpose_blocks<B / 2>(tile);
#pragma GCC unroll 16
        for (int j = 0; j < B; j++) store(out + (start + j) * B, tile[j]);
    }
#endif
    for (int lane = 0; lane < B; lane++)
        for (int j = start; j < width; j++) out[j * B + lane] = pointers[lane][j];
}

// From columns to rows of `stride` numbers; `stride` is `width`, rounded up to whole vectors, and the rest is left as it is.
template <class T> inline void columns_to_rows(const T *columns, int width, T *out, int stride) {
    constexpr int B = LANES<T>;
    int start = 0;
#ifdef HKCONV_SHUFFLES
    for (; start + B <= width; start += B) {
        Vector<T> tile[B];
#pragma GCC unroll 16
        for (int j = 0; j < B; j++) tile[j] = load<Vector<T>>(columns + (start + j) * B);
        transpose_blocks<B / 2>(tile);
#pragma GCC unroll 16
        for (int lane = 0; lane < B; lane++) store(out + lane * stride + start, tile[lane]);
    }
#endif
    for (int j = start; j < width; j++)
        for (int lane = 0; lane < B; lane++) out[lane * stride + j] = columns[j * B + lane];
}

constexpr int rounded_up(int size, int unit) { return (size + unit - 1) / unit * unit; }

} // namespace hkconv

// Addresses of a function for both precisions, by which Python finds it.
#define HKCONV_PUBLIC __attribute__((visibility("default")))
#define HKCONV_EXPORT(function)                                                                     \
    extern "C" {                                                                                    \
    HKCONV_PUBLIC void *function##_float32 = reinterpret_cast<void *>(&hkconv::function<float>);    \
    HKCONV_PUBLIC void *function##_float64 = reinterpret_cast<void *>(&hkconv::function<double>);   \
    }
