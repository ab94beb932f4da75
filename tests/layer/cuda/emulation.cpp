// An emulated thread is a fiber, made once a thread of the process.
#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <memory>
#include <mutex>
#include <vector>

#include "moe/base/check.h"
#include "moe/tensor/cuda/launch.cuh"

thread_local EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

namespace moe::emulation {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStack = 64 << 10;

std::atomic<bool> runs_backwards = false;
std::atomic<int64_t> launches_made = 0;

enum class State : uint8_t { ready, at_barrier, at_warp, refused, done };

struct Fiber {
  boost::context::fiber at;  // where it waits, while another runs
  State state = State::done;
  Site site;
  int exchanges = 0;
};

// What a warp's lanes give each other; two, since one lane may be an exchange ahead of another.
struct Warp {
  uint64_t given[2][kWarp];
};

// Keeps for ever a fiber that a failed launch left in the middle of a kernel: its end would unwind its stack, which
// sanitizers do not follow.
void leave(boost::context::fiber fiber) {
  static std::mutex mutex;
  static auto& all = *new std::vector<boost::context::fiber>;
  const std::lock_guard lock(mutex);
  all.push_back(std::move(fiber));
}

class Machine {
 public:
  ~Machine() {
    thread_ = nullptr;
    for (size_t i = 0; i < fibers_.size(); ++i)
      if (fibers_[i]->at)  // else there was no memory for its stack
        fibers_[i]->state == State::done ? resume(static_cast<int>(i)) : leave(std::move(fibers_[i]->at));
  }
  void run(int64_t blocks, int threads, const std::function<void()>& thread) {
    require<WrongResult>(blocks < int64_t{1} << 31 && threads >= kWarp && threads <= 1024 && threads % kWarp == 0,
                         "a launch of {} blocks of {} threads: expected whole warps, up to 1024 threads", blocks,
                         threads);
    ++launches_made;
    thread_ = &thread;
    while (static_cast<int>(fibers_.size()) < threads) fibers_.push_back(std::make_unique<Fiber>());
    threads_ = threads;
    warps_.resize(threads / kWarp);
    gridDim.x = static_cast<unsigned>(blocks);
    blockDim.x = static_cast<unsigned>(threads);
    for (int64_t block = 0; block < blocks; ++block) {
      blockIdx.x = static_cast<unsigned>(block);
      run_block();
    }
  }

  void wait(State state, Site site) {
    Fiber& fiber = *fibers_[threadIdx.x];
    fiber.state = state;
    fiber.site = site;
    yield();
  }

  const uint64_t* exchange(uint64_t bits, Site site) {
    Fiber& fiber = *fibers_[threadIdx.x];
    uint64_t* given = warps_[threadIdx.x / kWarp].given[fiber.exchanges++ % 2];
    given[threadIdx.x % kWarp] = bits;
    wait(State::at_warp, site);
    return given;
  }

 private:
  // Makes what runs all launches' threads of an index, one after another.
  void start(Fiber& fiber) {
    fiber.at = {std::allocator_arg, boost::context::protected_fixedsize_stack(kStack),
                [this, &fiber](boost::context::fiber&& scheduler) {
                  scheduler_ = std::move(scheduler);
                  while (thread_ != nullptr) {
                    (*thread_)();
                    fiber.state = State::done;
                    yield();
                  }
                  return std::move(scheduler_);
                }};
  }

  void yield() { scheduler_ = std::move(scheduler_).resume(); }

  void resume(int i) {
    threadIdx.x = static_cast<unsigned>(i);
    Fiber& fiber = *fibers_[i];
    fiber.at = std::move(fiber.at).resume();
  }

  void run_block() {
    for (int i = 0; i < threads_; ++i) {
      Fiber& fiber = *fibers_[i];
      if (fiber.state != State::done) leave(std::move(fiber.at));
      if (!fiber.at) start(fiber);
      fiber.state = State::ready;
      fiber.exchanges = 0;
    }
    const bool backwards = runs_backwards;
    int left = threads_;
    while (left > 0) {
      for (int i = 0; i < threads_; ++i) {
        const int next = backwards ? threads_ - 1 - i : i;
        if (fibers_[next]->state == State::ready) {
          resume(next);
          left -= fibers_[next]->state == State::done;
        }
      }
      if (left > 0) release();
    }
  }

  // Everyone waits or is done: lets go who met.
  void release() {
    bool any = release(0, threads_, State::at_barrier);
    for (int first = 0; first < threads_; first += kWarp) any |= release(first, first + kWarp, State::at_warp);
    if (any) return;
    int done = 0, at_barrier = 0, at_warp = 0;
    const Fiber* waits = nullptr;
    for (int i = 0; i < threads_; ++i) {
      const Fiber& fiber = *fibers_[i];
      done += fiber.state == State::done;
      at_barrier += fiber.state == State::at_barrier;
      at_warp += fiber.state == State::at_warp;
      if (fiber.state != State::done) waits = &fiber;
    }
    throw WrongResult(
        fmt::format("block {}: threads diverged: {} ended, {} wait at a barrier, {} for their warp, {} "
                    "with another mask than all lanes; one at {}:{}",
                    blockIdx.x, done, at_barrier, at_warp, threads_ - done - at_barrier - at_warp,
                    waits->site.file_name(), waits->site.line()));
  }

  bool release(int begin, int end, State state) {
    const Site& site = fibers_[begin]->site;
    for (int i = begin; i < end; ++i) {
      const Fiber& fiber = *fibers_[i];
      if (fiber.state != state || fiber.site.line() != site.line() || fiber.site.column() != site.column())
        return false;
    }
    for (int i = begin; i < end; ++i) fibers_[i]->state = State::ready;
    return true;
  }

  std::vector<Warp> warps_;
  boost::context::fiber scheduler_;  // who let the running fiber go on
  std::vector<std::unique_ptr<Fiber>> fibers_;
  int threads_ = 0;
  const std::function<void()>* thread_ = nullptr;
};

Machine& machine() {
  thread_local Machine machine;
  return machine;
}

}  // namespace

void run(int64_t blocks, int threads, const std::function<void()>& thread) {
  if (blocks > 0) machine().run(blocks, threads, thread);
}
void set_backwards(bool backwards) { runs_backwards = backwards; }
int64_t launches() { return launches_made; }
void block_barrier(Site site) { machine().wait(State::at_barrier, site); }

const uint64_t* exchange(unsigned mask, uint64_t bits, Site site) {
  if (mask != ~0U) machine().wait(State::refused, site);  // for ever: no kernel of ours needs part of a warp
  return machine().exchange(bits, site);
}

}  // namespace moe::emulation
