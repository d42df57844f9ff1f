// Exponential and logarithm of arrays, by which tests know how exact they are.
#include "lanes.hpp"

namespace hkconv {

template <class T, class Function> void map(int64_t count, const T *x, T *out, Function function) {
    constexpr int B = LANES<T>;
    for (int64_t i = 0; i < count; i += B) {
        T values[B] = {};
        std::size_t size = sizeof(T) * static_cast<std::size_t>(count - i < B ? count - i : B);
        std::memcpy(values, x + i, size);
        store(values, function(load<Vector<T>>(values)));
        std::memcpy(out + i, values, size);
    }
}

template <class T> void exponential_of(int64_t count, const T *x, T *out) { map(count, x, out, exponential<T>); }
template <class T> void log1p_of(int64_t count, const T *y, T *out) { map(count, y, out, log1p<T>); }

} // namespace hkconv

HKCONV_EXPORT(exponential_of)
HKCONV_EXPORT(log1p_of)
