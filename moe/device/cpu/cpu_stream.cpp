#include "moe/device/cpu/cpu_stream.h"

#include <utility>

#include "moe/base/threads.h"
#include "moe/device/cpu/cores.h"

namespace moe::cpu {

CpuStream::CpuStream(std::string_view name, std::shared_ptr<Failure> failure, int threads)
    : name_(name),
      failure_(failure ? std::move(failure) : std::make_shared<Failure>()),
      threads_(threads),
      thread_(start_thread(name_, [this] { serve(); })) {}

CpuStream::~CpuStream() {
  push({.kind = Kind::stop});
  thread_.join();
}

void CpuStream::launch(std::function<void(void*)> work) { push({.kind = Kind::launch, .work = std::move(work)}); }

void CpuStream::record(Event& event) {
  auto& recorded = static_cast<CpuEvent&>(event);
  // If another stream made the last record, its ring and ours could overtake each other, so wait for that record here.
  // It comes earlier in issue order, so the wait cannot close a cycle.
  if (recorded.recorded_on_.exchange(this, std::memory_order_relaxed) != this) wait(event);
  recorded.issued_.fetch_add(1, std::memory_order_relaxed);
  push({.kind = Kind::record, .event = &recorded});
}

void CpuStream::wait(Event& event) {
  auto& awaited = static_cast<CpuEvent&>(event);
  const uint32_t ticket = awaited.issued_.load(std::memory_order_relaxed);
  if (ticket != 0) push({.kind = Kind::wait, .ticket = ticket, .event = &awaited});
}

void CpuStream::hold(Event& since, Pace pace) {
  if (pace.at_least_s > 0) push({.kind = Kind::hold, .event = &static_cast<CpuEvent&>(since), .pace = pace});
}

void CpuStream::copy(Copy copy) { move({.copies = {copy}, .sum = {}}); }

void CpuStream::move(Moves moves) {
  launch([moves = std::move(moves)](void*) { execute_moves_on_host(moves); });
}

void CpuStream::synchronize() {
  const uint64_t target = queued_.load(std::memory_order_acquire);
  completed_bell_.wait_until([&] { return completed_.load(std::memory_order_acquire) >= target; });
  failure_->rethrow();
}

void CpuStream::push(Command command) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(command));
    queued_.fetch_add(1, std::memory_order_release);
  }
  queued_bell_.ring();
}

void CpuStream::serve() {
  set_thread_count(threads_);
  std::vector<Command> batch;
  uint64_t taken = 0;
  while (true) {
    if (queued_.load(std::memory_order_acquire) == taken) clock_.idle();
    queued_bell_.wait_until([&] { return queued_.load(std::memory_order_acquire) != taken; });
    {
      const std::lock_guard lock(mutex_);
      batch.swap(queue_);
    }
    taken += batch.size();
    for (Command& command : batch) {
      if (command.kind == Kind::stop) return;
      execute(command);
    }
    batch.clear();
    completed_.store(taken, std::memory_order_release);
    completed_bell_.ring();
  }
}

void CpuStream::execute(Command& command) {
  CpuEvent* event = command.event;
  switch (command.kind) {
    case Kind::launch:
      return run(std::exchange(command.work, nullptr));
    case Kind::record:
      event->paced_.store(clock_.is_paced(), std::memory_order_relaxed);
      event->seconds_.store(clock_.time_s(), std::memory_order_relaxed);
      event->bell_.ring();
      return;
    case Kind::wait:
      event->bell_.wait_until([&] { return event->reached(command.ticket); });
      return clock_.wait(event->seconds(), event->paced_.load(std::memory_order_relaxed));
    case Kind::hold:
      if (failure_->failed() || clock_.hold_until(event->seconds() + command.pace.at_least_s)) return;
      if (command.pace.overruns) command.pace.overruns->fetch_add(1, std::memory_order_relaxed);
      return;
    case Kind::stop:
      return;
  }
}

// Destroys `work` before the stream goes on: what it owns must not outlive the point that others wait for.
void CpuStream::run(std::function<void(void*)> work) {
  if (failure_->failed()) return;
  const int holds = clock_.holds();
  try {
    work(nullptr);
  } catch (...) {
    failure_->set(std::current_exception());
  }
  if (clock_.holds() == holds) clock_.worked();
}

}  // namespace moe::cpu
