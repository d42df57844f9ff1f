// Work for several threads: those of PyTorch's OpenMP where it has told us how to call them, else new ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hkconv {

using Team = void (*)(void (*)(void *), void *, unsigned, unsigned);
extern Team team;       // GOMP_parallel
extern pid_t team_home; // a fork has none of its parent's threads, and would wait for them

// More chunks than threads even out their loads.
constexpr int CHUNKS = 64;

// Call work(part) for each part, in so many threads at most.
template <class Work> void in_threads(int64_t threads, int64_t parts, Work work) {
    threads = std::min(threads, parts);
    if (threads <= 1) {
        for (int64_t part = 0; part < parts; part++) work(part);
        return;
    }
    struct Shared {
        std::atomic<int64_t> next{0};
        int64_t parts;
        Work *work;
    } shared;
    shared.parts = parts, shared.work = &work;
    auto draw = [](void *given) {
        auto *mine = static_cast<Shared *>(given);
        for (int64_t part; (part = mine->next.fetch_add(1)) < mine->parts;) (*mine->work)(part);
    };
    if (team && getpid() == team_home) {
        team(draw, &shared, static_cast<unsigned>(threads), 0);
        return;
    }
    std::vector<std::thread> others;
    for (int64_t i = 1; i < threads; i++) others.emplace_back(draw, &shared);
    draw(&shared);
    for (auto &other : others) other.join();
}

// Bounds of at most CHUNKS ranges of nodes with about equally many edges; they depend on the graph alone.
inline std::vector<int64_t> chunks(const int32_t *pointer, int64_t nodes, int64_t work_an_edge, int64_t worth_a_thread) {
    int64_t edges = pointer[nodes], count = 1;
    // A power of two, which is shared out evenly among the usual numbers of threads.
    while (count < CHUNKS && count * 2 <= edges * work_an_edge / worth_a_thread) count *= 2;
    std::vector<int64_t> bounds{0};
    for (int64_t i = 1; i < count; i++) {
        int64_t level = i * (edges + nodes) / count, low = bounds.back(), high = nodes;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (pointer[middle + 1] + middle + 1 < level) low = middle + 1;
            else high = middle;
        }
        bounds.push_back(low);
    }
    bounds.push_back(nodes);
    return bounds;
}

// Numbers on an address that all vectors may be read from, zero at first.
template <class T> class Array {
  public:
    explicit Array(std::size_t size) : begin_(new (ALIGNED) T[size + 1]) { std::fill(begin_, begin_ + size + 1, T(0)); }
    ~Array() { operator delete[](begin_, ALIGNED); }
    Array(const Array &) = delete;
    operator T *() const { return begin_; }

  private:
    static constexpr std::align_val_t ALIGNED{64};
    T *begin_;
};

} // namespace hkconv
