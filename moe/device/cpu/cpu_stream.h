#pragma once
// A stream that runs its work on a thread, and its events.
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "moe/device/cpu/doorbell.h"
#include "moe/device/cpu/pace_clock.h"
#include "moe/device/stream.h"

namespace moe::cpu {

/// An event that counts its records: its n-th record is reached once the bell has rung n times.
class CpuEvent final : public Event {
 public:
  double seconds() const override { return seconds_.load(std::memory_order_relaxed); }

 private:
  friend class CpuStream;
  // rings() has 31 bits, so the shift drops the top bit of the difference.
  bool reached(uint32_t ticket) const noexcept { return static_cast<int32_t>((bell_.rings() - ticket) << 1) >= 0; }

  Doorbell bell_;
  std::atomic<uint32_t> issued_{0};
  std::atomic<const Stream*> recorded_on_{nullptr};
  std::atomic<double> seconds_{0};
  std::atomic<bool> paced_{false};  // seconds_ comes from paces, not from the clock
};

class CpuStream final : public Stream {
 public:
  CpuStream(std::string_view name, std::shared_ptr<Failure> failure, int threads);
  ~CpuStream() override;
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  void launch(std::function<void(void* native)> work) override;
  bool calls_work_immediately() const override { return false; }
  void record(Event& event) override;
  void wait(Event& event) override;
  void mark(Event& since) override { record(since); }
  void hold(Event& since, Pace pace) override;
  void copy(Copy copy) override;
  void move(Moves moves) override;
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }
  void synchronize() override;
  PaceClock* pace_clock() override { return &clock_; }

 private:
  enum class Kind : uint8_t { launch, record, wait, hold, stop };
  struct Command {
    Kind kind = Kind::stop;
    uint32_t ticket = 0;  // in a wait: number of the event's record
    CpuEvent* event = nullptr;
    Pace pace = {};
    std::function<void(void*)> work = {};
  };

  void push(Command command);
  void serve();
  void execute(Command& command);
  void run(std::function<void(void*)> work);

  const std::string name_;
  const std::shared_ptr<Failure> failure_;
  const int threads_;

  std::mutex mutex_;
  std::vector<Command> queue_;       // guarded by mutex_; swapped with the thread's own batch
  std::atomic<uint64_t> queued_{0};  // number of commands queued so far
  std::atomic<uint64_t> completed_{0};
  Doorbell queued_bell_, completed_bell_;
  PaceClock clock_;  // the thread's own
  std::jthread thread_;
};

}  // namespace moe::cpu
