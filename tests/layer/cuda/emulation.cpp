// Fibers: made once a thread of the process by ucontext, then switched by sigsetjmp, which makes no system call.
#include <atomic>
#include <csetjmp>
#include <memory>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#include "moe/base/check.h"
#include "moe/tensor/cuda/launch.cuh"

thread_local EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

namespace moe::emulation {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStack = 64 << 10, kPage = 4096;

std::atomic<bool> runs_backwards = false;
std::atomic<int64_t> launches_made = 0;

enum class State : uint8_t { ready, at_barrier, at_warp, refused, done };

struct Fiber {
  ucontext_t start;
  sigjmp_buf at;
  std::byte* stack = nullptr;
  State state = State::done;
  Site site;
  int exchanges = 0;
};

// What a warp's lanes give each other; two, since one lane may be an exchange ahead of another.
struct Warp {
  uint64_t given[2][kWarp];
};

class Machine {
 public:
  ~Machine() {
    for (const auto& fiber : fibers_) munmap(fiber->stack, kStack + kPage);
  }
  void run(int64_t blocks, int threads, const std::function<void()>& thread) {
    require<WrongResult>(blocks < int64_t{1} << 31 && threads >= kWarp && threads <= 1024 && threads % kWarp == 0,
                         "a launch of {} blocks of {} threads: expected whole warps, up to 1024 threads", blocks,
                         threads);
    ++launches_made;
    thread_ = &thread;
    while (static_cast<int>(fibers_.size()) < threads) add_fiber();
    threads_ = threads;
    warps_.resize(static_cast<size_t>(threads / kWarp));
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
    if (sigsetjmp(fiber.at, 0) == 0) siglongjmp(scheduler_, 1);
  }

  const uint64_t* exchange(uint64_t bits, Site site) {
    Fiber& fiber = *fibers_[threadIdx.x];
    uint64_t* given = warps_[threadIdx.x / kWarp].given[fiber.exchanges++ % 2];
    given[threadIdx.x % kWarp] = bits;
    wait(State::at_warp, site);
    return given;
  }

 private:
  static void enter() { current()->serve(); }
  static Machine*& current() {
    thread_local Machine* machine = nullptr;
    return machine;
  }
  [[noreturn]] void serve() {
    const size_t self = starting_;
    if (sigsetjmp(fibers_[self]->at, 0) == 0) swapcontext(&fibers_[self]->start, &creator_);
    while (true) {
      (*thread_)();
      fibers_[self]->state = State::done;
      if (sigsetjmp(fibers_[self]->at, 0) == 0) siglongjmp(scheduler_, 1);
    }
  }

  void add_fiber() {
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *fibers_.back();
    void* memory = mmap(nullptr, kStack + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require<WrongResult>(memory != MAP_FAILED, "no memory for the stack of an emulated thread");
    fiber.stack = static_cast<std::byte*>(memory);
    mprotect(fiber.stack, kPage, PROT_NONE);  // stacks grow down
    getcontext(&fiber.start);
    fiber.start.uc_stack = {fiber.stack + kPage, 0, kStack};
    fiber.start.uc_link = nullptr;
    starting_ = fibers_.size() - 1;
    current() = this;
    makecontext(&fiber.start, &Machine::enter, 0);
    swapcontext(&creator_, &fiber.start);
  }

  void resume(int i) {
    threadIdx.x = static_cast<unsigned>(i);
    if (sigsetjmp(scheduler_, 0) == 0) siglongjmp(fibers_[static_cast<size_t>(i)]->at, 1);
  }

  void run_block() {
    for (int i = 0; i < threads_; ++i) {
      Fiber& fiber = *fibers_[static_cast<size_t>(i)];
      // One that an earlier launch's failure left in the middle of a kernel starts anew.
      if (fiber.state != State::done) restart(static_cast<size_t>(i));
      fiber.state = State::ready;
      fiber.exchanges = 0;
    }
    const bool backwards = runs_backwards;
    int left = threads_;
    while (left > 0) {
      for (int i = 0; i < threads_; ++i) {
        const int next = backwards ? threads_ - 1 - i : i;
        if (fibers_[static_cast<size_t>(next)]->state == State::ready) {
          resume(next);
          left -= fibers_[static_cast<size_t>(next)]->state == State::done;
        }
      }
      if (left > 0) release();
    }
  }

  void restart(size_t i) {
    Fiber& fiber = *fibers_[i];
    getcontext(&fiber.start);
    fiber.start.uc_stack = {fiber.stack + kPage, 0, kStack};
    starting_ = i;
    current() = this;
    makecontext(&fiber.start, &Machine::enter, 0);
    swapcontext(&creator_, &fiber.start);
  }

  // Everyone waits or is done: lets go who met.
  void release() {
    bool any = release(0, threads_, State::at_barrier);
    for (int first = 0; first < threads_; first += kWarp) any |= release(first, first + kWarp, State::at_warp);
    if (any) return;
    int done = 0, at_barrier = 0, at_warp = 0;
    const Fiber* waits = nullptr;
    for (int i = 0; i < threads_; ++i) {
      const Fiber& fiber = *fibers_[static_cast<size_t>(i)];
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
    const Site& site = fibers_[static_cast<size_t>(begin)]->site;
    for (int i = begin; i < end; ++i) {
      const Fiber& fiber = *fibers_[static_cast<size_t>(i)];
      if (fiber.state != state || fiber.site.line() != site.line() || fiber.site.column() != site.column())
        return false;
    }
    for (int i = begin; i < end; ++i) fibers_[static_cast<size_t>(i)]->state = State::ready;
    return true;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  sigjmp_buf scheduler_;
  ucontext_t creator_;
  size_t starting_ = 0;
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
